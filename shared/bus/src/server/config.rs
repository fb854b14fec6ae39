//! The server's configuration file, written from the layout, and a credentials file for each user.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::connect::CredentialsFile;
use crate::error::BusError;
use crate::layout::Layout;
use crate::server::permissions::{CORE, Service, User, services, users};

/// A user's password in the configuration.
#[derive(Clone)]
pub enum Password {
    /// The password itself.
    Literal(String),
    /// The name of an environment variable of the server's process.
    Env(String),
}

/// What the configuration is made from.
pub struct ServerConfig<'a> {
    /// Services, tenants, clusters.
    pub layout: &'a Layout,
    /// `host:port`; port -1 lets the system choose.
    pub listen: String,
    /// `host:port` of the monitoring page; `None` for none. It has no password: keep it on loopback.
    pub monitor: Option<String>,
    /// Where the streams are kept.
    pub store: PathBuf,
    /// Gives each user's password.
    pub password: &'a dyn Fn(&User) -> Password,
}

/// The files written by [`ServerConfig::write`].
#[derive(Debug, Clone)]
pub struct Written {
    /// The server's configuration.
    pub config: PathBuf,
    /// The credentials file of each user, by its name.
    pub credentials: BTreeMap<String, PathBuf>,
}

impl ServerConfig<'_> {
    /// The configuration's text.
    ///
    /// # Errors
    /// A name in the layout that can't be used.
    pub fn render(&self) -> Result<String, BusError> {
        let users = users(self.layout)?;
        let services = services(self.layout)?;
        let mut text = String::new();
        line(&mut text, 0, "# Written by muster from its layout of services, tenants and clusters.");
        line(&mut text, 0, &format!("listen: {}", quoted(&self.listen)));
        if let Some(monitor) = &self.monitor {
            line(&mut text, 0, &format!("http: {}", quoted(monitor)));
        }
        line(&mut text, 0, "max_payload: 1048576");
        line(&mut text, 0, "jetstream {");
        line(&mut text, 1, &format!("store_dir: {}", quoted(&self.store.display().to_string())));
        line(
            &mut text,
            1,
            "# What was acknowledged is on disk: on one server a power cut would lose it otherwise.",
        );
        line(&mut text, 1, "sync_interval: always");
        line(&mut text, 0, "}");
        line(&mut text, 0, "system_account: SYS");
        line(&mut text, 0, "accounts {");
        line(&mut text, 1, "SYS {}");
        for account in accounts(&users) {
            self.account(&mut text, &account, &users, &services);
        }
        line(&mut text, 0, "}");
        Ok(text)
    }

    fn account(&self, text: &mut String, account: &str, users: &[User], services: &[Service]) {
        line(text, 1, &format!("{} {{", quoted(account)));
        if account == CORE {
            line(text, 2, "jetstream: enabled");
        }
        line(text, 2, "users: [");
        for user in users.iter().filter(|user| user.account == account) {
            let password = match (self.password)(user) {
                Password::Literal(password) => quoted(&password),
                Password::Env(variable) => format!("${variable}"),
            };
            line(text, 3, &format!("{{ user: {}, password: {password}, permissions: {{", quoted(&user.name)));
            list(text, "publish", &user.publish);
            list(text, "subscribe", &user.subscribe);
            line(text, 3, "} }");
        }
        line(text, 2, "]");
        line(text, 2, "exports: [");
        let mut offered = BTreeSet::new();
        let own = services.iter().filter(|service| service.from == account);
        for service in own.filter(|service| offered.insert((&service.subject, &service.to))) {
            let streamed = if service.streamed { ", response_type: stream" } else { "" };
            let (subject, to) = (quoted(&service.subject), quoted(&service.to));
            line(text, 3, &format!("{{ service: {subject}, accounts: [{to}]{streamed} }}"));
        }
        line(text, 2, "]");
        line(text, 2, "imports: [");
        for service in services.iter().filter(|service| service.to == account) {
            let (subject, from) = (quoted(&service.subject), quoted(&service.from));
            let to =
                service.known_as.as_ref().map(|name| format!(", to: {}", quoted(name))).unwrap_or_default();
            line(text, 3, &format!("{{ service: {{ account: {from}, subject: {subject} }}{to} }}"));
        }
        line(text, 2, "]");
        line(text, 1, "}");
    }

    /// Writes `nats.conf` and `users/<user>.json` below `dir`, readable by the owner only. Passwords taken
    /// from the environment give no credentials file.
    ///
    /// # Errors
    /// As [`ServerConfig::render`]; a file can't be written.
    pub fn write(&self, dir: &Path) -> Result<Written, BusError> {
        let config = dir.join("nats.conf");
        let folder = dir.join("users");
        let make = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        make.map_err(|source| BusError::File { path: folder.display().to_string(), source })?;
        write_private(&config, &self.render()?)?;
        let mut credentials = BTreeMap::new();
        for user in users(self.layout)? {
            let Password::Literal(password) = (self.password)(&user) else { continue };
            let path = folder.join(format!("{}.json", user.name.replace('/', ".")));
            let file = CredentialsFile { user: user.name.clone(), password, inbox_prefix: user.inbox_prefix };
            let text = serde_json::to_string_pretty(&file)
                .map_err(|e| BusError::Options(format!("credentials of {}: {e}", user.name)))?;
            write_private(&path, &text)?;
            credentials.insert(user.name, path);
        }
        Ok(Written { config, credentials })
    }
}

fn accounts(users: &[User]) -> Vec<String> {
    let mut accounts: Vec<String> = users.iter().map(|user| user.account.clone()).collect();
    accounts.dedup();
    accounts
}

fn line(text: &mut String, depth: usize, content: &str) {
    // Writing to a String can't fail.
    let _ = writeln!(text, "{:1$}{content}", "", depth * 2);
}

fn list(text: &mut String, name: &str, subjects: &[String]) {
    line(text, 4, &format!("{name}: {{ allow: ["));
    for subject in subjects {
        line(text, 5, &quoted(subject));
    }
    line(text, 4, "] }");
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Through a temporary file, so that a crash leaves the old one or the new one; never readable by others.
fn write_private(path: &Path, text: &str) -> Result<(), BusError> {
    let failed = |source| BusError::File { path: path.display().to_string(), source };
    let temporary = path.with_extension("new");
    if temporary.exists() {
        fs::remove_file(&temporary).map_err(failed)?;
    }
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&temporary, path).map_err(failed)
}
