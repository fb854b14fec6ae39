//! The commands' way to the cell: ask the ledger, publish requests.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use muster_bus::{Bus, BusError, Credentials, Options, names, provision::MAX_REQUEST};
use muster_core::WorkloadId;
use muster_ledger::view::{Answer, Question, Workload};
use muster_proto::{Command, Request, command};
use prost::Message;

use crate::{
    args::Global,
    context::{Config, Context},
    exit,
};

const PATIENCE: Duration = Duration::from_secs(10);

/// A connection as the context's tenant or operator.
pub struct Client {
    pub bus: Bus,
    pub context: Context,
    pub namespace: String,
    is_operator: bool,
}

/// As whom a command connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum As {
    /// The operator where the context has one, else the tenant.
    Reader,
    Tenant,
    Operator,
}

impl Client {
    pub async fn connect(global: &Global, who: As) -> Result<Self> {
        let (name, context) = Config::load()?.choose(global.context.as_deref())?;
        let is_operator = match who {
            As::Tenant => false,
            As::Operator => true,
            As::Reader => context.operator.is_some(),
        };
        let file = if is_operator { &context.operator } else { &context.credentials };
        let Some(file) = file else {
            let (role, flag) =
                if is_operator { ("operator", "--operator") } else { ("tenant user", "--credentials") };
            bail!(
                "context {name:?} has no credentials of the {role}: `muster context set {name} --url … {flag} FILE`"
            );
        };
        let mut options = Options::new(&context.url, "muster-cli").with(Credentials::File(file.clone()));
        options.wait = Some(Duration::from_secs(5));
        let bus = Bus::connect(&options).await.map_err(|error| {
            exit::with(exit::NO_CONNECTION, format!("{error}. Is it running? `muster doctor` tells"))
        })?;
        let namespace = global.namespace.clone().unwrap_or_else(|| context.namespace.clone());
        Ok(Self { bus, context, namespace, is_operator })
    }

    /// Asks the ledger.
    pub async fn ask(&self, question: &Question) -> Result<Answer> {
        let subject = if self.is_operator {
            names::ASK_LEDGER.to_owned()
        } else {
            names::ask_ledger(&self.context.tenant)?
        };
        let payload = Bytes::from(serde_json::to_vec(question)?);
        let reply = match self.bus.ask(&subject, payload, PATIENCE).await {
            Ok(reply) => reply,
            Err(error @ (BusError::NobodyAnswers { .. } | BusError::Timeout { .. })) => {
                return Err(exit::with(exit::NO_CONNECTION, format!("the ledger does not answer: {error}")));
            }
            Err(error) => return Err(error.into()),
        };
        match serde_json::from_slice(&reply)
            .context("the ledger's answer can't be read; is it of another version?")?
        {
            Answer::NotFound { what } => Err(exit::with(exit::NOT_FOUND, format!("{what} not found"))),
            Answer::Refused { reason } => bail!(reason),
            answer => Ok(answer),
        }
    }

    /// One workload by id or name.
    pub async fn workload(&self, name: &str) -> Result<Workload> {
        let question = Question::Workload { namespace: Some(self.namespace.clone()), name: name.to_owned() };
        match self.ask(&question).await? {
            Answer::Workload(workload) => Ok(*workload),
            _ => bail!("the ledger answered something else"),
        }
    }

    /// Publishes a request and gives its sequence in REQUESTS.
    pub async fn request(&self, kind: &str, commands: Vec<command::Kind>, key: Option<&str>) -> Result<u64> {
        let (tenant, principal) = if self.is_operator {
            (names::OPS.to_owned(), "operator".to_owned())
        } else {
            (self.context.tenant.clone(), self.principal()?)
        };
        let subject = names::request(&tenant, &principal, kind)?;
        let commands = commands.into_iter().map(|kind| Command { kind: Some(kind) }).collect();
        let request = Request { commands, key: String::new() };
        let payload = request.encode_to_vec();
        if payload.len() > MAX_REQUEST {
            let text = format!("the request has {} KiB; 256 KiB are allowed", payload.len().div_ceil(1024));
            return Err(exit::with(exit::REJECTED, text));
        }
        Ok(self.bus.submit(&subject, payload.into(), key).await?)
    }

    /// The user of the credentials file: `<tenant>/<principal>`.
    fn principal(&self) -> Result<String> {
        let path = self.context.credentials.as_ref().context("no credentials")?;
        let file: muster_bus::CredentialsFile = serde_json::from_slice(&std::fs::read(path)?)
            .with_context(|| format!("{} is not a credentials file", path.display()))?;
        Ok(file.user.rsplit('/').next().unwrap_or(&file.user).to_owned())
    }

    /// The log's generation, with which the ids of new workloads begin.
    pub async fn generation(&self) -> Result<u32> {
        match self.ask(&Question::Position { at_least: 0 }).await? {
            Answer::Position { generation, .. } => Ok(u32::from_str_radix(&generation, 16)?),
            _ => bail!("the ledger answered something else"),
        }
    }
}

/// The id that a command of a request gets.
pub fn id_of(generation: u32, request: u64, index: usize) -> WorkloadId {
    WorkloadId { generation, request, index: u32::try_from(index).unwrap_or(u32::MAX) }
}
