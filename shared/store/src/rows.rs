//! How an image is arranged: one ordered space of keys.
//!
//! ```text
//! "m"                          -> magic, format (u16, little endian), ImageMeta (borsh)
//! "r" <table> 0x00 <key>       -> row, as its table encodes it
//! ```

use muster_core::ImageMeta;

/// How images are arranged on disk. Another number is refused, not guessed at.
pub const FORMAT: u16 = 1;

pub(crate) const META: &[u8] = b"m";
pub(crate) const ROW: u8 = b'r';
const MAGIC: &[u8; 8] = b"MUSTERIM";

/// Why the entry under [`META`] can't be read.
pub(crate) enum BadMeta {
    Format(u16),
    Bytes(String),
}

pub(crate) fn encode_meta(meta: &ImageMeta) -> std::io::Result<Vec<u8>> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(FORMAT.to_le_bytes());
    borsh::to_writer(&mut bytes, meta)?;
    Ok(bytes)
}

pub(crate) fn decode_meta(bytes: &[u8]) -> Result<ImageMeta, BadMeta> {
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| BadMeta::Bytes("the magic is missing".into()))?;
    let (format, body) =
        rest.split_first_chunk::<2>().ok_or_else(|| BadMeta::Bytes("it ends early".into()))?;
    match u16::from_le_bytes(*format) {
        FORMAT => borsh::from_slice(body).map_err(|error| BadMeta::Bytes(error.to_string())),
        other => Err(BadMeta::Format(other)),
    }
}

/// Writes the key of a row into `into`, which is cleared first.
pub(crate) fn row_key(into: &mut Vec<u8>, table: &str, key: &[u8]) {
    into.clear();
    into.push(ROW);
    into.extend_from_slice(table.as_bytes());
    into.push(0);
    into.extend_from_slice(key);
}

/// Table and key of a row; none for what is no row.
pub(crate) fn split_row_key(key: &[u8]) -> Option<(&str, &[u8])> {
    let rest = key.strip_prefix(&[ROW])?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    Some((std::str::from_utf8(&rest[..end]).ok()?, &rest[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_key_splits_into_what_it_was_made_of() {
        let mut key = Vec::new();
        row_key(&mut key, "workloads", &[0, 1, 0]);
        assert_eq!(split_row_key(&key), Some(("workloads", [0, 1, 0].as_slice())));
        assert_eq!(split_row_key(META), None);
        assert_eq!(split_row_key(b"rno-end"), None);
    }

    #[test]
    fn a_position_of_another_format_is_told_from_a_broken_one() {
        let meta = ImageMeta { position: 7, ..ImageMeta::default() };
        let mut bytes = encode_meta(&meta).unwrap();
        assert_eq!(decode_meta(&bytes).ok(), Some(meta));
        bytes[8] = 9;
        assert!(matches!(decode_meta(&bytes), Err(BadMeta::Format(9))));
        bytes[0] = 0;
        assert!(matches!(decode_meta(&bytes), Err(BadMeta::Bytes(_))));
        assert!(matches!(decode_meta(MAGIC), Err(BadMeta::Bytes(_))));
    }
}
