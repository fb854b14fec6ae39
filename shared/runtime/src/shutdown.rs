//! The request to end.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// A request to end that many can wait for; cheap to clone, all clones are one.
#[derive(Clone, Debug)]
pub struct Shutdown(Arc<watch::Sender<bool>>);

impl Default for Shutdown {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Shutdown {
    /// One that SIGTERM and SIGINT request. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// The system allows no handler.
    pub fn on_signals() -> std::io::Result<Self> {
        let shutdown = Self::default();
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let handle = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = term.recv() => tracing::info!("SIGTERM: finishing the step in hand"),
                _ = int.recv() => tracing::info!("SIGINT: finishing the step in hand"),
            }
            handle.request();
        });
        Ok(shutdown)
    }

    /// Asks whoever waits to end.
    pub fn request(&self) {
        self.0.send_replace(true);
    }

    /// Waits for the request.
    pub async fn requested(&self) {
        // The sender lives in `self`, so the wait can't fail.
        let _ = self.0.subscribe().wait_for(|requested| *requested).await;
    }
}
