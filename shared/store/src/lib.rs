//! RocksDB: position and rows in one WriteBatch.
