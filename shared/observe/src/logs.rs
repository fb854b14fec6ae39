//! Logs on stderr: JSON lines for machines, text for a terminal.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Which lines are written: as `RUST_LOG` elsewhere, e.g. `info,muster_bus=debug`.
const VARIABLE: &str = "MUSTER_LOG";

/// Sends this process's log lines to stderr, from level `info` on or as `MUSTER_LOG` says. A process that
/// has its logs set up already keeps them.
pub fn init_logs(service: &str) {
    let wanted = std::env::var(VARIABLE).unwrap_or_else(|_| "info".to_owned());
    let (filter, fault) = match EnvFilter::try_new(&wanted) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new("info"), Some(error)),
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // An error means that somebody else was first, whose setting then holds.
    let _ = if std::io::stderr().is_terminal() {
        lines.with_target(false).try_init()
    } else {
        lines.json().flatten_event(true).with_current_span(false).try_init()
    };
    if let Some(error) = fault {
        tracing::warn!(service, %error, "{VARIABLE}={wanted:?} is no filter; using info");
    }
}
