//! A replica's store: rows and position, written together, and older copies of it.

use std::collections::BTreeMap;

use muster_core::{Image, ImageMeta, WriteSet, defect, defect::Defect};

use crate::dice::Dice;

type Rows = BTreeMap<&'static str, BTreeMap<Vec<u8>, Vec<u8>>>;
/// Between two older copies.
const COPY_EVERY: u64 = 40;

#[derive(Clone, Debug, Default)]
struct Copy {
    rows: Rows,
    meta: ImageMeta,
}

#[derive(Debug, Default)]
pub struct Disk {
    now: Copy,
    /// What a backup, or a disk that forgot its last writes, would bring back.
    older: Vec<Copy>,
    commits: u64,
}

/// Which image a restart finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Last,
    Older,
    Nothing,
}

impl Disk {
    /// One batch: all of it or nothing. With the defect, `torn` may leave half of it.
    pub fn commit(&mut self, writes: WriteSet, torn: bool, dice: &mut Dice) {
        if self.commits.is_multiple_of(COPY_EVERY) {
            self.older.push(self.now.clone());
            if self.older.len() > 3 {
                self.older.remove(0);
            }
        }
        self.commits += 1;
        let half = torn && defect::on(Defect::PositionOutsideBatch);
        if torn && !half {
            return;
        }
        let position_only = half && dice.below(2) == 0;
        if !position_only {
            for (table, key, row) in writes.rows {
                let rows = self.now.rows.entry(table).or_default();
                match row {
                    Some(row) => _ = rows.insert(key, row),
                    None => _ = rows.remove(&key),
                }
            }
        }
        if !half || position_only {
            self.now.meta = writes.meta;
        }
    }

    /// A crash may lose the last writes, or the whole disk.
    pub fn lose(&mut self, found: Found, dice: &mut Dice) {
        match found {
            Found::Last => {}
            Found::Nothing => self.wipe(),
            Found::Older => {
                if let Some(copy) = dice.pick(&self.older) {
                    self.now = copy.clone();
                }
            }
        }
    }

    pub fn wipe(&mut self) {
        self.now = Copy::default();
        self.older.clear();
    }

    #[must_use]
    pub const fn meta(&self) -> &ImageMeta {
        &self.now.meta
    }

    /// The image; none when nothing was ever committed.
    #[must_use]
    pub fn image(&self) -> Option<Image> {
        if self.now.meta.position == 0 && self.now.rows.is_empty() {
            return None;
        }
        let tables = self.now.rows.iter();
        let rows = tables.flat_map(|(table, rows)| {
            rows.iter().map(|(key, row)| ((*table).to_owned(), key.clone(), row.clone()))
        });
        Some(Image { meta: self.now.meta.clone(), rows: rows.collect() })
    }
}
