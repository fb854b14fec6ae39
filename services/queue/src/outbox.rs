//! What has to be done outside the log before something can be decided, or after it was.

use muster_core::{Outgoing, Timestamp};
use muster_proto::Rejected;

use crate::inbox::Inbox;
use crate::judge::{Step, Walk};
use crate::parse::Command;
use crate::state::State;

/// So many commands from the cursor on are prepared at a time.
const WINDOW: usize = 64;

pub(crate) fn outbox(state: &State, inbox: &Inbox, now: Timestamp) -> Vec<Outgoing> {
    let prepared = Walk::new(state, inbox).take(WINDOW).filter_map(prepare);
    let orphans = inbox.orphans.iter().take(WINDOW).copied();
    let erasures = state.erasing().map(|(_, body)| body).filter(|body| !inbox.deleted.contains(body));
    let deletions = orphans.chain(erasures).map(|seq| Outgoing::DeleteBody { seq });
    prepared.chain(deletions).filter(|wish| inbox.may_try(wish, now)).collect()
}

fn prepare(step: Step<'_>) -> Option<Outgoing> {
    match step {
        Step::Accepted { request, message, entry, command: Command::Submit { manifest, .. } }
            if entry.body.is_none() =>
        {
            Some(Outgoing::StoreBody {
                request: request.seq,
                index: request.index,
                tenant: message.tenant.clone(),
                body: manifest.clone(),
            })
        }
        Step::Refused { request, message, entry, refusal } if entry.told.is_none() => {
            let rejected = Rejected {
                request: Some(request),
                key: message.key.clone(),
                faults: refusal.into_owned().faults,
            };
            Some(Outgoing::SendRejection { tenant: message.tenant.clone(), rejected })
        }
        _ => None,
    }
}
