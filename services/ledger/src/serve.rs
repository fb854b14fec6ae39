//! Answering asks: from the state, and for `Why` also from the services.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use muster_bus::{Ask, Bus, names};
use muster_core::{Driver, Seq};
use muster_runtime::{Answerer, Question as ServiceQuestion, Reply, ask};

use crate::{
    Ledger, Scope, answer,
    view::{Answer, Question, Reason, Workload},
};

/// How long a service may take to explain.
const PATIENCE: Duration = Duration::from_secs(2);

/// The ledger's asks: `muster.ask.ledger` and `muster.ask.ledger.<tenant>`.
#[derive(Debug)]
pub struct Questions;

impl Answerer<Ledger> for Questions {
    fn subjects(&self) -> Vec<String> {
        vec![names::ASK_LEDGER.to_owned(), names::ASK_LEDGER_TENANTS.to_owned()]
    }

    fn at_least(&self, ask: &Ask) -> Seq {
        match serde_json::from_slice(&ask.payload) {
            Ok(Question::Position { at_least }) => at_least,
            _ => 0,
        }
    }

    fn answer(&self, driver: &Driver<Ledger>, bus: &Bus, ask: Ask, reply: Reply) {
        let question: Question = match serde_json::from_slice(&ask.payload) {
            Ok(question) => question,
            Err(error) => return reply.send(Err(format!("not a question of the ledger: {error}"))),
        };
        let found = answer(driver.state(), driver.meta().position, &scope(&ask.subject), &question);
        match (question, found) {
            (Question::Why { .. }, Answer::Workload(workload)) => {
                let bus = bus.clone();
                tokio::spawn(async move {
                    let reasons = reasons(&bus, &workload).await;
                    reply.send(encode(&Answer::Why { workload, reasons }));
                });
            }
            (_, found) => reply.send(encode(&found)),
        }
    }
}

/// A tenant asks on a subject of its own, which its account alone may use.
fn scope(subject: &str) -> Scope {
    match subject.strip_prefix(names::ASK_LEDGER).and_then(|rest| rest.strip_prefix('.')) {
        Some(tenant) => Scope::Tenant(tenant.to_owned()),
        None => Scope::Operator,
    }
}

fn encode(answer: &Answer) -> Result<Bytes, String> {
    serde_json::to_vec(answer).map(Bytes::from).map_err(|error| error.to_string())
}

/// Asks each service that may have something to say. No decision depends on the answers.
async fn reasons(bus: &Bus, workload: &Workload) -> Vec<Reason> {
    let mut services = vec![("queue", "0"), ("admission", "0"), ("federation", "0")];
    services.extend(workload.legs.iter().map(|leg| ("desk", leg.cluster.as_str())));
    let asked = services.into_iter().map(|(service, partition)| async move {
        let question = ServiceQuestion::Explain(workload.id.clone());
        match ask(bus, service, partition, &question, PATIENCE).await {
            Ok(answer) => answer.why.map(|why| Reason {
                service: service.to_owned(),
                reason: why.reason,
                message: why.message,
                numbers: why.numbers,
            }),
            Err(error) => Some(Reason {
                service: service.to_owned(),
                reason: "NoAnswer".to_owned(),
                message: error.to_string(),
                numbers: Vec::new(),
            }),
        }
    });
    join_all(asked).await.into_iter().flatten().collect()
}
