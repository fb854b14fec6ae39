//! Why a leg stands where it stands in this cluster.

use muster_core::{Why, WorkloadId};
use muster_model::lifecycle::LegState;

use crate::{Config, DeskState, Inbox, ghosts::is_running, inbox::Body};

pub(crate) fn explain(config: &Config, state: &DeskState, inbox: &Inbox, id: &WorkloadId) -> Option<Why> {
    let row = state.lifecycle.workload(id)?;
    let attempt = row.live()?;
    let leg = attempt.leg(&config.cluster).filter(|leg| !leg.is_over())?;
    let cluster = &config.cluster;
    let heard = inbox.report(state, cluster);
    let object = heard.and_then(|heard| heard.legs.get(&(*id, attempt.no)));
    let (reason, message) = match (heard, leg.state) {
        (None, _) => {
            ("AgentSilent", format!("the agent of cluster {cluster} has not reported to this desk yet"))
        }
        (_, LegState::Asked) => match state.specs.get(id).map(|spec| inbox.body(spec)) {
            Some(Body::Missing) => ("BodyAwaited", "its manifest is being fetched from BODIES".to_owned()),
            _ => ("GrantAwaited", format!("cluster {cluster} was asked to create it and has not answered")),
        },
        (_, _) if row.stopping() => ("Stopping", format!("cluster {cluster} was told to stop and remove it")),
        (_, _) if !attempt.committed => {
            ("CommitAwaited", format!("created in {cluster}, waits for the commit"))
        }
        _ if object.is_some_and(is_running) => ("Running", format!("runs in cluster {cluster}")),
        _ => ("Starting", format!("cluster {cluster} was told to start it")),
    };
    let mut numbers =
        vec![("attempt".to_owned(), attempt.no.to_string()), ("last_fact".to_owned(), leg.last.to_string())];
    if let Some(heard) = heard {
        numbers.push(("report_echo".to_owned(), heard.echo.to_string()));
        numbers.push(("report_time_us".to_owned(), heard.at.0.to_string()));
    }
    Some(Why { reason, message, numbers })
}
