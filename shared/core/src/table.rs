//! Rows of state: an ordered map that knows what changed, its hash, and how to go back.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;

use borsh::{BorshDeserialize, BorshSerialize, from_slice, to_vec};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

use crate::WriteSet;

/// What a table's keys must be able to do.
pub trait Key: Ord + Clone + BorshSerialize + BorshDeserialize {}
impl<T: Ord + Clone + BorshSerialize + BorshDeserialize> Key for T {}

/// What a table's rows must be able to do. Encoded rows stay below 4 KiB.
pub trait Row: Clone + PartialEq + BorshSerialize + BorshDeserialize {}
impl<T: Clone + PartialEq + BorshSerialize + BorshDeserialize> Row for T {}

/// An ordered map with dirty keys, a hash (the sum of its rows' hashes, modulo 2^128), and an
/// overlay that can be rolled back.
///
/// A *stored* table is written to the image and counts in the hash. An *index* is derived from
/// stored tables: it does neither, and `State::reindex` rebuilds it.
#[derive(Clone, Debug)]
pub struct Table<K, V> {
    name: &'static str,
    stored: bool,
    rows: BTreeMap<K, V>,
    dirty: BTreeSet<K>,
    /// Keys touched since the hash was last brought up to date, with the row hash it contains.
    stale: BTreeMap<K, u128>,
    hash: u128,
    undo: Option<Vec<(K, Option<V>)>>,
}

impl<K: Key, V: Row> Table<K, V> {
    /// A table that is part of the state. Its name is part of the hash and of the image.
    #[must_use]
    pub const fn stored(name: &'static str) -> Self {
        Self::new(name, true)
    }

    /// A table that is derived from others.
    #[must_use]
    pub const fn index(name: &'static str) -> Self {
        Self::new(name, false)
    }

    const fn new(name: &'static str, stored: bool) -> Self {
        Self {
            name,
            stored,
            rows: BTreeMap::new(),
            dirty: BTreeSet::new(),
            stale: BTreeMap::new(),
            hash: 0,
            undo: None,
        }
    }

    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key)
    }

    #[must_use]
    pub fn contains(&self, key: &K) -> bool {
        self.rows.contains_key(key)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Rows in the order of their keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.rows.iter()
    }

    /// Rows of a range of keys, in order.
    pub fn range<R: RangeBounds<K>>(&self, range: R) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.rows.range(range)
    }

    /// Sets a row. Setting what is there already changes nothing.
    pub fn put(&mut self, key: K, row: V) {
        if self.rows.get(&key) == Some(&row) {
            return;
        }
        self.touch(&key);
        self.rows.insert(key, row);
    }

    /// Removes a row, and says whether there was one.
    pub fn remove(&mut self, key: &K) -> bool {
        if !self.rows.contains_key(key) {
            return false;
        }
        self.touch(key);
        self.rows.remove(key).is_some()
    }

    /// Changes a row in place, if there is one.
    pub fn update<R>(&mut self, key: &K, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        if !self.rows.contains_key(key) {
            return None;
        }
        self.touch(key);
        self.rows.get_mut(key).map(change)
    }

    /// Must be called before a row changes: remembers what the hash holds of it, and for undo.
    fn touch(&mut self, key: &K) {
        let old = self.rows.get(key);
        if let Some(undo) = &mut self.undo {
            undo.push((key.clone(), old.cloned()));
        }
        if self.stored {
            if !self.stale.contains_key(key) {
                let contained = old.map_or(0, |row| row_hash(self.name, key, row));
                self.stale.insert(key.clone(), contained);
            }
            if !self.dirty.contains(key) {
                self.dirty.insert(key.clone());
            }
        }
    }
}

fn encoded<T: BorshSerialize>(value: &T) -> Vec<u8> {
    // Writing to memory fails only for a value that has no canonical form (a NaN), and rows hold no floats.
    to_vec(value).unwrap_or_default()
}

fn row_hash<K: Key, V: Row>(table: &str, key: &K, row: &V) -> u128 {
    let mut bytes = encoded(key);
    let key_len = bytes.len() as u64;
    if row.serialize(&mut bytes).is_err() {
        bytes.truncate(key_len as usize);
    }
    xxh3_128_with_seed(&bytes, xxh3_64(table.as_bytes()) ^ key_len)
}

/// A stored row that can't be read back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("table {table}: {reason}")]
pub struct CorruptRow {
    pub table: String,
    pub reason: String,
}

/// A table whose key and row types don't matter: what the host needs of every table.
pub trait AnyTable {
    fn name(&self) -> &'static str;
    fn is_stored(&self) -> bool;
    /// Brings the hash up to date and gives it.
    fn hash(&mut self) -> u128;
    /// Changes from here on can be rolled back.
    fn begin(&mut self);
    /// Undoes every change since [`AnyTable::begin`].
    fn rollback(&mut self);
    /// Moves the rows that changed since the last time into a write set.
    fn drain(&mut self, into: &mut WriteSet);
    /// Takes a row of the image.
    ///
    /// # Errors
    /// When the bytes are not a row of this table.
    fn load(&mut self, key: &[u8], row: &[u8]) -> Result<(), CorruptRow>;
}

impl<K: Key, V: Row> AnyTable for Table<K, V> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_stored(&self) -> bool {
        self.stored
    }

    fn hash(&mut self) -> u128 {
        for (key, contained) in std::mem::take(&mut self.stale) {
            let now = self.rows.get(&key).map_or(0, |row| row_hash(self.name, &key, row));
            self.hash = self.hash.wrapping_sub(contained).wrapping_add(now);
        }
        self.hash
    }

    fn begin(&mut self) {
        self.undo = Some(Vec::new());
    }

    fn rollback(&mut self) {
        for (key, row) in self.undo.take().into_iter().flatten().rev() {
            match row {
                Some(row) => self.rows.insert(key, row),
                None => self.rows.remove(&key),
            };
        }
    }

    fn drain(&mut self, into: &mut WriteSet) {
        for key in std::mem::take(&mut self.dirty) {
            let row = self.rows.get(&key).map(encoded);
            into.rows.push((self.name, encoded(&key), row));
        }
    }

    fn load(&mut self, key: &[u8], row: &[u8]) -> Result<(), CorruptRow> {
        let corrupt =
            |error: std::io::Error| CorruptRow { table: self.name.to_owned(), reason: error.to_string() };
        let key: K = from_slice(key).map_err(corrupt)?;
        let row: V = from_slice(row).map_err(corrupt)?;
        self.hash = self.hash.wrapping_add(row_hash(self.name, &key, &row));
        self.rows.insert(key, row);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(rows: &[(u8, Option<u16>)]) -> Table<u8, u16> {
        let mut table = Table::stored("t");
        for (key, row) in rows {
            match row {
                Some(row) => table.put(*key, *row),
                None => _ = table.remove(key),
            }
        }
        table
    }

    proptest! {
        #[test]
        fn the_hash_depends_on_the_rows_alone(changes: Vec<(u8, Option<u16>)>, every in 1usize..5) {
            let mut step_by_step = Table::stored("t");
            for (n, (key, row)) in changes.iter().enumerate() {
                match row {
                    Some(row) => step_by_step.put(*key, *row),
                    None => _ = step_by_step.remove(key),
                }
                if n % every == 0 { step_by_step.hash(); }
            }
            let mut fresh = Table::stored("t");
            for (key, row) in step_by_step.iter() { fresh.put(*key, *row); }
            prop_assert_eq!(step_by_step.hash(), fresh.hash());
        }

        #[test]
        fn a_rollback_restores_rows_and_hash(before: Vec<(u8, Option<u16>)>, overlay: Vec<(u8, Option<u16>)>) {
            let mut table = filled(&before);
            let (rows, hash) = (table.rows.clone(), table.hash());
            table.begin();
            for (key, row) in &overlay {
                match row { Some(row) => table.put(*key, *row), None => _ = table.remove(key) }
            }
            table.rollback();
            prop_assert_eq!(&table.rows, &rows);
            prop_assert_eq!(table.hash(), hash);
        }

        #[test]
        fn what_is_drained_loads_to_the_same_hash(changes: Vec<(u8, Option<u16>)>) {
            let mut table = filled(&changes);
            let mut writes = WriteSet::default();
            table.drain(&mut writes);
            let mut loaded: Table<u8, u16> = Table::stored("t");
            for (_, key, row) in &writes.rows {
                if let Some(row) = row { loaded.load(key, row).unwrap(); }
            }
            prop_assert_eq!(loaded.hash(), table.hash());
        }
    }

    #[test]
    fn the_same_row_in_another_table_has_another_hash() {
        let (mut a, mut b) = (Table::stored("a"), Table::stored("b"));
        a.put(1u8, 2u8);
        b.put(1u8, 2u8);
        assert_ne!(a.hash(), b.hash());
    }

    #[test]
    fn a_broken_row_is_an_error_not_a_panic() {
        let mut table: Table<u8, String> = Table::stored("t");
        assert!(table.load(&[1], &[255, 255, 255, 255]).is_err());
    }
}
