//! The little server on loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::{Health, Metrics, STALE};

/// Where to serve.
#[derive(Clone, Debug, Default)]
pub struct Http {
    /// Port on 127.0.0.1; 0: the system chooses.
    pub port: u16,
    /// Gets the port as text once it is open.
    pub port_file: Option<PathBuf>,
}

/// The server could not start.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The port is taken, or not allowed.
    #[error("127.0.0.1:{port} can't be opened for health and metrics: {source}")]
    Port {
        /// The port asked for.
        port: u16,
        /// The system's error.
        source: std::io::Error,
    },
    /// The port could not be written down.
    #[error("{}: {source}", path.display())]
    PortFile {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// A running server; dropping it ends it at once.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    upkeep: JoinHandle<()>,
}

const UPKEEP: Duration = Duration::from_secs(10);
/// A client that keeps its connection open does not hold up the end.
const PATIENCE: Duration = Duration::from_millis(500);

/// Serves `/healthz` and `/readyz` (200 or 503, with JSON) and `/metrics` on loopback.
///
/// # Errors
/// The port can't be opened, or not be written down.
pub async fn serve(http: &Http, health: Health, metrics: Metrics) -> Result<Server, HttpError> {
    let failed = |source| HttpError::Port { port: http.port, source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, http.port)).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    if let Some(path) = &http.port_file {
        write_port(path, address.port())
            .map_err(|source| HttpError::PortFile { path: path.clone(), source })?;
    }
    let upkeep = tokio::spawn({
        let metrics = metrics.clone();
        async move {
            loop {
                tokio::time::sleep(UPKEEP).await;
                metrics.sum_up();
            }
        }
    });
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(health)
        .route("/metrics", get(move || async move { metrics.render() }));
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move {
        let end = async { _ = stopped.await };
        if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(end).await {
            tracing::error!(%error, "the server of health and metrics ended");
        }
    });
    Ok(Server { address, stop: Some(stop), task, upkeep })
}

impl Server {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers what is being asked, and ends.
    pub async fn shutdown(mut self) {
        self.stop.take();
        // What is not answered by then is cut off when this is dropped.
        let _ = tokio::time::timeout(PATIENCE, &mut self.task).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
        self.upkeep.abort();
    }
}

/// Whole or not at all, for whoever waits for the file.
fn write_port(path: &Path, port: u16) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let draft = path.with_extension("tmp");
    std::fs::write(&draft, format!("{port}\n"))?;
    std::fs::rename(&draft, path)
}

async fn healthz(State(health): State<Health>) -> (StatusCode, Json<Value>) {
    let silent = health.since_beat();
    let alive = silent < STALE;
    let body = json!({ "alive": alive, "silent_ms": silent.as_millis() });
    (if alive { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, Json(body))
}

async fn readyz(State(health): State<Health>) -> (StatusCode, Json<Value>) {
    let problems = health.problems();
    let ready = problems.is_empty();
    let body = json!({ "ready": ready, "problems": problems });
    (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, Json(body))
}
