//! A log in a file, for archives and for replay without a server.
//!
//! ```text
//! magic     "MUSTERLOG" and the format's number (one byte, 1)
//! messages  each: length (u32, little endian, not 0), then protobuf:
//!           { uint64 seq = 1; string subject = 2; int64 time_us = 3; bytes payload = 4; }
//! end       length 0 (u32), number of messages (u64, little endian)
//! trailer   SHA-256 of everything before it (32 bytes)
//! ```
//!
//! A file is compared with its trailer before anything in it is used, so any changed byte is found. Who
//! could have changed the trailer too is found by the chain in the envelopes, up to the last messages.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use muster_bus::{Bus, BusError, Incoming, Log, Reader, names};
use muster_core::{Record, Seq, Timestamp};
use prost::Message;
use sha2::{Digest, Sha256};

use crate::source::record;

const MAGIC: &[u8; 10] = b"MUSTERLOG\x01";
const TRAILER: u64 = 32;
/// No message of EVENTS is larger; a length beyond is damage.
const LARGEST: u32 = 4 << 20;

/// Why a log could not be exported, or an exported one not be read.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The file system refuses.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The bytes are not those that were written.
    #[error("{} is not the log that was exported: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The log can't be read.
    #[error(transparent)]
    Bus(#[from] BusError),
}

#[derive(Clone, PartialEq, Message)]
struct Exported {
    #[prost(uint64, tag = "1")]
    seq: u64,
    #[prost(string, tag = "2")]
    subject: String,
    #[prost(int64, tag = "3")]
    time_us: i64,
    #[prost(bytes = "bytes", tag = "4")]
    payload: Bytes,
}

/// Writes a log as a file.
pub struct Writer<W: Write> {
    to: W,
    sha256: Sha256,
    count: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn new(to: W) -> io::Result<Self> {
        let mut writer = Self { to, sha256: Sha256::new(), count: 0 };
        writer.put(MAGIC)?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sha256.update(bytes);
        self.to.write_all(bytes)
    }

    /// Adds the next message.
    ///
    /// # Errors
    /// Those of the writer; a message above 4 MiB.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        let exported = Exported {
            seq: record.seq,
            subject: record.subject.clone(),
            time_us: record.time.0,
            payload: record.payload.clone(),
        };
        let bytes = exported.encode_to_vec();
        let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= LARGEST);
        let length =
            length.ok_or_else(|| io::Error::other(format!("message {} is too large", record.seq)))?;
        self.put(&length.to_le_bytes())?;
        self.put(&bytes)?;
        self.count += 1;
        Ok(())
    }

    /// Ends the file; gives back the number of messages.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self) -> io::Result<(u64, W)> {
        let count = self.count;
        self.put(&0_u32.to_le_bytes())?;
        self.put(&count.to_le_bytes())?;
        let sha256 = self.sha256.finalize();
        self.to.write_all(&sha256)?;
        self.to.flush()?;
        Ok((count, self.to))
    }
}

/// Writes the log that a server holds, up to `to` or its present end, into a file that is there only when it
/// is whole. The number of messages.
///
/// # Errors
/// The log can't be read (it needs the right to create consumers); the file system refuses.
pub async fn export(bus: &Bus, path: &Path, to: Option<Seq>) -> Result<u64, ExportError> {
    let failed = |source| ExportError::File { path: path.to_owned(), source };
    let last = Log::new(bus).last_seq().await?;
    let to = to.map_or(last, |to| to.min(last));
    let draft = path.with_extension("part");
    let mut writer = Writer::new(BufWriter::new(File::create(&draft).map_err(failed)?)).map_err(failed)?;
    let mut reader = Reader::scan(bus, names::EVENTS, None, 0).await?;
    while reader.position() < to {
        if let Incoming::Batch(records) = reader.next().await? {
            for message in records.into_iter().map(record).take_while(|message| message.seq <= to) {
                writer.write(&message).map_err(failed)?;
            }
        }
    }
    let (count, file) = writer.finish().map_err(failed)?;
    file.get_ref().sync_all().map_err(failed)?;
    std::fs::rename(&draft, path).map_err(failed)?;
    Ok(count)
}

/// The messages of an exported log.
pub struct Records {
    path: PathBuf,
    file: BufReader<File>,
    ended: bool,
}

/// Opens an exported log, after comparing all of it with its trailer.
///
/// # Errors
/// The file can't be read; it is not what was written.
pub fn open(path: &Path) -> Result<Records, ExportError> {
    let failed = |source| ExportError::File { path: path.to_owned(), source };
    let damaged = |reason: &str| ExportError::Damaged { path: path.to_owned(), reason: reason.to_owned() };
    let mut file = BufReader::with_capacity(1 << 18, File::open(path).map_err(failed)?);
    let length = file.get_ref().metadata().map_err(failed)?.len();
    let body = length.checked_sub(TRAILER).ok_or_else(|| damaged("it is too short"))?;
    let mut sha256 = Sha256::new();
    io::copy(&mut (&mut file).take(body), &mut HashWriter(&mut sha256)).map_err(failed)?;
    let mut trailer = [0; TRAILER as usize];
    file.read_exact(&mut trailer).map_err(failed)?;
    if sha256.finalize()[..] != trailer {
        return Err(damaged("its SHA-256 is another one: a byte was changed, or the end is missing"));
    }
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut magic = [0; MAGIC.len()];
    file.read_exact(&mut magic).map_err(failed)?;
    if &magic != MAGIC {
        return Err(damaged("it does not begin as an exported log of this format"));
    }
    Ok(Records { path: path.to_owned(), file, ended: false })
}

struct HashWriter<'a>(&'a mut Sha256);

impl Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Records {
    fn read(&mut self) -> Result<Option<Record>, ExportError> {
        let failed = |source| ExportError::File { path: self.path.clone(), source };
        let damaged = |reason: String| ExportError::Damaged { path: self.path.clone(), reason };
        let mut length = [0; 4];
        self.file.read_exact(&mut length).map_err(failed)?;
        let length = u32::from_le_bytes(length);
        if length == 0 {
            return Ok(None);
        }
        if length > LARGEST {
            return Err(damaged(format!("a message of {length} bytes")));
        }
        let mut bytes = vec![0; length as usize];
        self.file.read_exact(&mut bytes).map_err(failed)?;
        let exported = Exported::decode(Bytes::from(bytes)).map_err(|error| damaged(error.to_string()))?;
        let Exported { seq, subject, time_us, payload } = exported;
        Ok(Some(Record { seq, subject, time: Timestamp(time_us), payload }))
    }
}

impl Iterator for Records {
    type Item = Result<Record, ExportError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.read().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(seq: Seq) -> Record {
        let payload = Bytes::from(format!("decision {seq}"));
        Record { seq, subject: "muster.evt.queue.0".to_owned(), time: Timestamp(seq as i64), payload }
    }

    fn written(dir: &Path, count: u64) -> (PathBuf, Vec<u8>) {
        let mut writer = Writer::new(Vec::new()).unwrap();
        for seq in 1..=count {
            writer.write(&record(seq)).unwrap();
        }
        let (written, bytes) = writer.finish().unwrap();
        assert_eq!(written, count);
        let path = dir.join("log");
        std::fs::write(&path, &bytes).unwrap();
        (path, bytes)
    }

    #[test]
    fn an_exported_log_reads_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        for count in [0, 1, 50] {
            let (path, _) = written(dir.path(), count);
            let read: Vec<Record> = open(&path).unwrap().collect::<Result<_, _>>().unwrap();
            assert_eq!(read, (1..=count).map(record).collect::<Vec<_>>());
        }
    }

    #[test]
    fn any_flipped_byte_and_any_cut_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (path, bytes) = written(dir.path(), 3);
        for at in 0..bytes.len() {
            for flip in [0x01, 0x80] {
                let mut flipped = bytes.clone();
                flipped[at] ^= flip;
                std::fs::write(&path, &flipped).unwrap();
                assert!(matches!(open(&path), Err(ExportError::Damaged { .. })), "byte {at}");
            }
            std::fs::write(&path, &bytes[..at]).unwrap();
            assert!(open(&path).is_err(), "cut at {at}");
        }
        std::fs::write(&path, [bytes.as_slice(), b"x"].concat()).unwrap();
        assert!(open(&path).is_err(), "a byte was added");
    }
}
