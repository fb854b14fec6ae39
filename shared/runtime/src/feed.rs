//! A reader whose next batch is always under way, so that waiting for something else never interrupts it.

use std::future::Future;
use std::pin::Pin;

use muster_bus::{Bus, BusError, Incoming, Reader};

type Next = Pin<Box<dyn Future<Output = Result<(Reader, Incoming), BusError>> + Send>>;

pub(crate) struct Feed {
    next: Next,
}

impl Feed {
    /// Reads a stream after `position` with a provisioned durable, from the first poll on.
    pub fn open(bus: &Bus, stream: &'static str, durable: String, position: u64) -> Self {
        let bus = bus.clone();
        Self {
            next: Box::pin(async move {
                let reader = Reader::open(&bus, stream, &durable, position).await?;
                after(reader).await
            }),
        }
    }

    /// What comes next. Nothing is lost when this is dropped while it waits.
    ///
    /// # Errors
    /// Those of the reader; then the feed is over.
    pub async fn next(&mut self) -> Result<Incoming, BusError> {
        match (&mut self.next).await {
            Ok((reader, incoming)) => {
                self.next = Box::pin(after(reader));
                Ok(incoming)
            }
            Err(error) => {
                self.next = Box::pin(std::future::pending());
                Err(error)
            }
        }
    }
}

async fn after(mut reader: Reader) -> Result<(Reader, Incoming), BusError> {
    let incoming = reader.next().await?;
    Ok((reader, incoming))
}
