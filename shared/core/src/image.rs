//! The durable image of a state, and when it may be trusted.

use crate::{Seq, sha256};

/// (table, key, row); no row: deleted.
pub type Change = (&'static str, Vec<u8>, Option<Vec<u8>>);

/// Rows that changed and the position that they belong to: written together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteSet {
    pub rows: Vec<Change>,
    pub meta: ImageMeta,
}

/// Which log, and how far into it, an image stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, borsh::BorshSerialize, borsh::BorshDeserialize)]
pub struct ImageMeta {
    pub schema: u32,
    pub generation: u32,
    pub position: Seq,
    /// SHA-256 of the payload of the message at `position`.
    pub last_hash: [u8; 32],
    /// The state hash at `position`.
    pub state_hash: u128,
    /// The last `now` that a decision recorded, in microseconds.
    pub last_now_us: i64,
    pub rules: u32,
}

/// An image as the store gives it back: (table, key, row).
#[derive(Clone, Debug, Default)]
pub struct Image {
    pub meta: ImageMeta,
    pub rows: Vec<(String, Vec<u8>, Vec<u8>)>,
}

/// Why an image and a log don't belong together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error(
        "the log ends at sequence {last}, but this image has folded up to {position}: the log lost messages or is \
         another one. Nothing was changed. Restore the log, or accept the loss with `muster log accept-loss`"
    )]
    LogIsShorter { last: Seq, position: Seq },
    #[error(
        "the log's generation is {log:08x}, the image's is {image:08x}: it belongs to another log. Nothing was \
         changed. Point at the right server, or start anew with `--rebuild`"
    )]
    OtherGeneration { log: u32, image: u32 },
    #[error(
        "message {position} of the log is not the one that this image folded: the log was changed. Nothing was \
         changed here. Restore the log, or accept the loss with `muster log accept-loss`"
    )]
    OtherMessage { position: Seq },
    #[error(
        "the log begins at {first}, this image ends at {position}: what lies between was archived. Start with `--rebuild` from a snapshot"
    )]
    Cut { first: Seq, position: Seq },
}

/// Compares an image with the log it is to be continued from (DESIGN 3.3). `generation` is the
/// log's latest, `at_position` the payload of its message at the image's position.
///
/// # Errors
/// [`Refused`] when going on would lose or invent facts.
pub fn verify(
    meta: &ImageMeta,
    generation: u32,
    first: Seq,
    last: Seq,
    at_position: Option<&[u8]>,
) -> Result<(), Refused> {
    let position = meta.position;
    if position == 0 {
        return Ok(());
    }
    if last < position {
        return Err(Refused::LogIsShorter { last, position });
    }
    if first > position + 1 {
        return Err(Refused::Cut { first, position });
    }
    match at_position {
        // A new generation that follows on what was folded is an ordinary fact, met by folding on.
        Some(payload) if sha256(payload) == meta.last_hash => Ok(()),
        _ if generation != meta.generation => {
            Err(Refused::OtherGeneration { log: generation, image: meta.generation })
        }
        _ => Err(Refused::OtherMessage { position }),
    }
}
