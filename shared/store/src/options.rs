//! How RocksDB is set up for images: a few small files, every checksum looked at.

use rocksdb::{DBCompressionType, DBRecoveryMode, LogLevel, Options, ReadOptions, WriteOptions};

const MEMTABLE_BYTES: usize = 16 << 20;
const WAL_BYTES: u64 = 64 << 20;
const INFO_LOG_BYTES: usize = 1 << 20;

pub(crate) fn database() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_paranoid_checks(true);
    // The batches before the first damage are whole; the log has what came after them.
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    options.set_write_buffer_size(MEMTABLE_BYTES);
    options.set_max_write_buffer_number(3);
    options.set_max_total_wal_size(WAL_BYTES);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_max_background_jobs(2);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(INFO_LOG_BYTES);
    options.set_log_level(LogLevel::Warn);
    options
}

/// Into the WAL, but not flushed to disk: a crash of the process loses nothing, one of the machine only
/// what the log still has.
pub(crate) fn write() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(false);
    options.disable_wal(false);
    options
}

/// For reading everything once.
pub(crate) fn scan() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_verify_checksums(true);
    options.fill_cache(false);
    options.set_readahead_size(2 << 20);
    options
}
