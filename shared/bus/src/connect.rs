//! Connecting: options, credentials, waiting for the server, refusing one that is too old.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::{ConnectErrorKind, ConnectOptions};
use serde::{Deserialize, Serialize};

use crate::bus::Bus;
use crate::error::BusError;
use crate::link::Link;

/// The oldest server with consumer reset, on which reading relies.
pub const OLDEST_SERVER: &str = "2.14.0";

/// Below the 0.2 s that the design allows between the server's return and ours.
const RETRY: Duration = Duration::from_millis(100);

/// How to reach the server.
#[derive(Debug, Clone)]
pub struct Options {
    /// `nats://host:port`; several servers of one cluster are separated by commas.
    pub url: String,
    /// Who connects.
    pub credentials: Credentials,
    /// Shown by the server's monitoring; say service and instance.
    pub name: String,
    /// Where replies go. Permissions allow each user only its own, `_INBOX_<user>`; `None` takes the
    /// credentials' own, else `_INBOX_<user>`, else the library's `_INBOX`.
    pub inbox_prefix: Option<String>,
    /// How long to wait for the server at start; `None` waits for ever (and logs that it does).
    pub wait: Option<Duration>,
    /// How long one call may take.
    pub deadline: Duration,
}

impl Options {
    /// Options without credentials: wait for ever, 5 s a call.
    #[must_use]
    pub fn new(url: impl Into<String>, name: impl Into<String>) -> Options {
        Options {
            url: url.into(),
            credentials: Credentials::None,
            name: name.into(),
            inbox_prefix: None,
            wait: None,
            deadline: Duration::from_secs(5),
        }
    }

    /// The same with other credentials.
    #[must_use]
    pub fn with(mut self, credentials: Credentials) -> Options {
        self.credentials = credentials;
        self
    }
}

/// Who connects.
#[derive(Clone, Default)]
pub enum Credentials {
    /// A server without users.
    #[default]
    None,
    /// User and password of the server's configuration.
    Password {
        /// User.
        user: String,
        /// Password; never logged.
        password: String,
    },
    /// A [`CredentialsFile`] as [`ServerConfig`](crate::server::ServerConfig) writes it, or a NATS `.creds` file.
    File(PathBuf),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Credentials::None => f.write_str("None"),
            Credentials::Password { user, .. } => write!(f, "Password({user})"),
            Credentials::File(path) => write!(f, "File({})", path.display()),
        }
    }
}

/// The JSON in a credentials file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialsFile {
    /// User name.
    pub user: String,
    /// Password.
    pub password: String,
    /// The inbox prefix that the user's permissions allow.
    pub inbox_prefix: String,
}

/// The inbox prefix that goes with a user's name.
#[must_use]
pub fn inbox_prefix(user: &str) -> String {
    let token = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    format!("_INBOX_{}", user.chars().map(token).collect::<String>())
}

impl Bus {
    /// Connects, waits for the server as long as the options say, and refuses one older than
    /// [`OLDEST_SERVER`].
    ///
    /// # Errors
    /// Unusable options; the server turns the user away; too old; not reached in time.
    pub async fn connect(options: &Options) -> Result<Bus, BusError> {
        let start = Instant::now();
        let mut told = None::<Instant>;
        loop {
            let link = Arc::new(Link::new());
            let (connect, user) = connect_options(options, &link)?;
            let servers: Vec<&str> = options.url.split(',').map(str::trim).collect();
            let error = match connect.connect(servers).await {
                Ok(client) => {
                    check_version(&options.url, &client.server_info().version)?;
                    return Ok(Bus::new(client, link, options.deadline));
                }
                Err(error) => error,
            };
            match error.kind() {
                ConnectErrorKind::ServerParse => {
                    return Err(BusError::Options(format!("url {:?}: {error}", options.url)));
                }
                ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                    let (url, reason) = (options.url.clone(), error.to_string());
                    return Err(BusError::Unauthorized { url, user, reason });
                }
                _ => {}
            }
            let waited = start.elapsed();
            if options.wait.is_some_and(|limit| waited + RETRY > limit) {
                let (url, reason) = (options.url.clone(), error.to_string());
                return Err(BusError::Unreachable { url, waited, reason });
            }
            if told.is_none_or(|at| at.elapsed() > Duration::from_secs(5)) {
                tracing::warn!(url = %options.url, %error, "waiting for NATS");
                told = Some(Instant::now());
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

fn connect_options(options: &Options, link: &Arc<Link>) -> Result<(ConnectOptions, String), BusError> {
    let events = Arc::clone(link);
    let connect = ConnectOptions::new()
        .name(&options.name)
        .connection_timeout(Duration::from_secs(2))
        .ping_interval(Duration::from_secs(10))
        .request_timeout(Some(options.deadline))
        .reconnect_delay_callback(|attempt| if attempt <= 1 { Duration::ZERO } else { RETRY })
        .event_callback(move |event| {
            let events = Arc::clone(&events);
            async move { events.on_event(event) }
        });
    let (connect, user, own_prefix) = match &options.credentials {
        Credentials::None => (connect, "an anonymous user".to_owned(), None),
        Credentials::Password { user, password } => {
            let prefix = inbox_prefix(user);
            (connect.user_and_password(user.clone(), password.clone()), user.clone(), Some(prefix))
        }
        Credentials::File(path) => from_file(connect, path)?,
    };
    Ok(match options.inbox_prefix.clone().or(own_prefix) {
        Some(prefix) => (connect.custom_inbox_prefix(prefix), user),
        None => (connect, user),
    })
}

fn from_file(
    connect: ConnectOptions,
    path: &Path,
) -> Result<(ConnectOptions, String, Option<String>), BusError> {
    let shown = path.display().to_string();
    let text =
        std::fs::read_to_string(path).map_err(|source| BusError::File { path: shown.clone(), source })?;
    if text.contains("BEGIN NATS USER JWT") {
        let connect =
            connect.credentials(&text).map_err(|e| BusError::Options(format!("credentials {shown}: {e}")))?;
        return Ok((connect, format!("the user of {shown}"), None));
    }
    let file: CredentialsFile =
        serde_json::from_str(&text).map_err(|e| BusError::Options(format!("credentials {shown}: {e}")))?;
    Ok((connect.user_and_password(file.user.clone(), file.password), file.user, Some(file.inbox_prefix)))
}

fn check_version(url: &str, found: &str) -> Result<(), BusError> {
    if numbers(found) >= numbers(OLDEST_SERVER) {
        return Ok(());
    }
    Err(BusError::OldServer { url: url.into(), found: found.into(), needed: OLDEST_SERVER })
}

/// Major and minor; what can't be read counts as 0, so that an unknown server is refused.
fn numbers(version: &str) -> (u64, u64) {
    let mut parts = version.trim_start_matches('v').split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_below_2_14_are_refused_by_name() {
        assert!(check_version("u", "2.14.0").is_ok());
        assert!(check_version("u", "2.15.0-dev").is_ok());
        assert!(check_version("u", "3.0.1").is_ok());
        let error = check_version("nats://h:4222", "2.12.8").unwrap_err().to_string();
        assert_eq!(error, "nats-server 2.12.8 at nats://h:4222 is too old: muster needs 2.14.0 or newer");
        assert!(check_version("u", "nonsense").is_err());
    }

    #[test]
    fn passwords_are_not_shown() {
        let password = Credentials::Password { user: "queue".into(), password: "hush".into() };
        assert!(!format!("{password:?}").contains("hush"));
    }

    #[test]
    fn inbox_prefixes_are_one_token() {
        assert_eq!(inbox_prefix("acme/alice.b"), "_INBOX_acme_alice_b");
    }
}
