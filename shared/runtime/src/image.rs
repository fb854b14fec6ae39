//! Writing the image, off the way of the decisions: a thread of its own takes what was committed meanwhile
//! and writes it as one batch.

use std::thread::JoinHandle;
use std::time::Duration;

use muster_core::{Seq, WriteSet};
use muster_store::{Store, StoreError};
use tokio::sync::{mpsc, oneshot, watch};

/// Commits that may wait; then folding waits for the disk.
const WAITING: usize = 64;
/// What is committed within this time becomes one batch: a wake of the thread and a write for each message would
/// take the processor from the services that decide next. A crash loses no more than this of the image.
const LINGER: Duration = Duration::from_millis(5);
/// Rows that are put into one batch at most.
const BATCH_ROWS: usize = 100_000;

pub(crate) struct ImageWriter {
    commits: mpsc::Sender<WriteSet>,
    failed: oneshot::Receiver<StoreError>,
    written: watch::Receiver<Seq>,
    thread: JoinHandle<()>,
}

impl ImageWriter {
    pub fn start(store: Store, position: Seq) -> std::io::Result<Self> {
        let (commits, waiting) = mpsc::channel(WAITING);
        let (fail, failed) = oneshot::channel();
        let (done, written) = watch::channel(position);
        let thread = std::thread::Builder::new().name("image".to_owned()).spawn(move || {
            if let Err(error) = write_all(store, waiting, &done) {
                // Nobody there to hear it: the host is ending anyhow.
                let _ = fail.send(error);
            }
        })?;
        Ok(Self { commits, failed, written, thread })
    }

    /// Hands over a commit; waits when the disk is behind. A failure is told by [`ImageWriter::failed`].
    pub async fn commit(&self, writes: WriteSet) {
        let _ = self.commits.send(writes).await;
    }

    /// Waits until writing has failed; for ever when it does not.
    pub async fn failed(&mut self) -> StoreError {
        match (&mut self.failed).await {
            Ok(error) => error,
            Err(_) => std::future::pending().await,
        }
    }

    /// The position of the image on disk.
    pub fn written(&self) -> Seq {
        *self.written.borrow()
    }

    /// Writes what was handed over and closes the image.
    pub async fn finish(mut self) -> Result<(), StoreError> {
        drop(self.commits);
        let thread = self.thread;
        // The thread does not panic, and a failure of it comes by the channel.
        let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        match self.failed.try_recv() {
            Ok(error) => Err(error),
            Err(_) => Ok(()),
        }
    }
}

fn write_all(
    mut store: Store,
    mut waiting: mpsc::Receiver<WriteSet>,
    done: &watch::Sender<Seq>,
) -> Result<(), StoreError> {
    while let Some(mut writes) = waiting.blocking_recv() {
        std::thread::sleep(LINGER);
        while writes.rows.len() < BATCH_ROWS {
            let Ok(more) = waiting.try_recv() else { break };
            writes.rows.extend(more.rows);
            writes.meta = more.meta;
        }
        store.commit(&writes)?;
        done.send_replace(writes.meta.position);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_core::ImageMeta;

    #[tokio::test]
    async fn all_that_was_handed_over_is_on_disk_after_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let writer = ImageWriter::start(Store::open(dir.path()).unwrap().0, 0).unwrap();
        for position in 1..=100_u64 {
            let rows = vec![("t", vec![1], Some(position.to_le_bytes().to_vec()))];
            let meta = ImageMeta { position, ..ImageMeta::default() };
            writer.commit(WriteSet { rows, meta }).await;
        }
        writer.finish().await.unwrap();
        let image = Store::open(dir.path()).unwrap().1.unwrap();
        assert_eq!(image.meta.position, 100);
        assert_eq!(image.rows, [("t".to_owned(), vec![1], 100_u64.to_le_bytes().to_vec())]);
    }
}
