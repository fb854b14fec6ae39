//! Opening, reading and writing one image.

use std::fs;
use std::path::{Path, PathBuf};

use muster_core::{Image, WriteSet};
use rocksdb::{DB, IteratorMode, WriteBatch};

use crate::rows::{self, BadMeta, FORMAT, META};
use crate::{StoreError, options};

/// One image, open in this process alone.
pub struct Store {
    db: DB,
    path: PathBuf,
    key: Vec<u8>,
}

impl Store {
    /// Opens the image in a folder, which is made when it is not there, and reads all of it, every checksum
    /// verified. No image: nothing was ever committed here.
    ///
    /// Whether the image is of the right schema and of this log is for the caller to judge by its meta.
    ///
    /// # Errors
    /// Every kind of [`StoreError`].
    pub fn open(path: &Path) -> Result<(Self, Option<Image>), StoreError> {
        fs::create_dir_all(path).map_err(|error| StoreError::io(path, &error))?;
        if is_beheaded(path)? {
            return Err(StoreError::corrupt(path, "it has data files, but CURRENT is missing"));
        }
        let db = DB::open(&options::database(), path).map_err(|error| StoreError::of(path, &error))?;
        let store = Self { db, path: path.to_owned(), key: Vec::new() };
        let image = store.read()?;
        Ok((store, image))
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes rows and position: both or neither. Survives the end of this process at once, of the machine a
    /// little later.
    ///
    /// # Errors
    /// No room, or the file system refuses: then nothing of it is in the image.
    pub fn commit(&mut self, writes: &WriteSet) -> Result<(), StoreError> {
        let mut batch = WriteBatch::default();
        for (table, key, row) in &writes.rows {
            rows::row_key(&mut self.key, table, key);
            match row {
                Some(row) => batch.put(&self.key, row),
                None => batch.delete(&self.key),
            }
        }
        let meta = rows::encode_meta(&writes.meta).map_err(|error| StoreError::io(&self.path, &error))?;
        batch.put(META, meta);
        self.db.write_opt(batch, &options::write()).map_err(|error| StoreError::of(&self.path, &error))
    }

    fn read(&self) -> Result<Option<Image>, StoreError> {
        let corrupt = |reason: &str| StoreError::corrupt(&self.path, reason);
        let mut meta = None;
        let mut found = Vec::new();
        for entry in self.db.iterator_opt(IteratorMode::Start, options::scan()) {
            let (key, value) = entry.map_err(|error| StoreError::of(&self.path, &error))?;
            if *key == *META {
                meta = Some(rows::decode_meta(&value).map_err(|bad| self.bad_meta(bad))?);
                continue;
            }
            let (table, key) =
                rows::split_row_key(&key).ok_or_else(|| corrupt("it holds a key that is no row"))?;
            found.push((table.to_owned(), key.to_owned(), value.into_vec()));
        }
        match meta {
            Some(meta) => Ok(Some(Image { meta, rows: found })),
            None if found.is_empty() => Ok(None),
            None => Err(corrupt("it has rows, but no position")),
        }
    }

    fn bad_meta(&self, bad: BadMeta) -> StoreError {
        match bad {
            BadMeta::Format(found) => StoreError::Format { path: self.path.clone(), found, known: FORMAT },
            BadMeta::Bytes(reason) => StoreError::corrupt(&self.path, format!("its position: {reason}")),
        }
    }
}

/// Removes the image in a folder, whatever state it is in, and opens an empty one. Files that are not
/// RocksDB's stay.
///
/// # Errors
/// Another process has it open; the file system refuses.
pub fn rebuild(path: &Path) -> Result<Store, StoreError> {
    fs::create_dir_all(path).map_err(|error| StoreError::io(path, &error))?;
    DB::destroy(&options::database(), path).map_err(|error| StoreError::of(path, &error))?;
    match Store::open(path)? {
        (store, None) => Ok(store),
        (_, Some(_)) => Err(StoreError::corrupt(path, "it could not be removed")),
    }
}

/// Data files without the file that says which of them count: RocksDB would start an empty image over them.
fn is_beheaded(path: &Path) -> Result<bool, StoreError> {
    if path.join("CURRENT").exists() {
        return Ok(false);
    }
    let io = |error: std::io::Error| StoreError::io(path, &error);
    for entry in fs::read_dir(path).map_err(io)? {
        if entry.map_err(io)?.path().extension().is_some_and(|extension| extension == "sst") {
            return Ok(true);
        }
    }
    Ok(false)
}
