//! Why a command is turned down: a stable code and every fault that was found.

use muster_core::WorkloadId;
use muster_proto::Fault;

/// The most bytes of one reason in a fact.
const MAX_REASON: usize = 240;

/// A command that changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// CamelCase and stable: programs may compare it.
    pub code: &'static str,
    /// At least one. Each message of the queue's own begins with the code.
    pub faults: Vec<Fault>,
}

impl Refusal {
    pub(crate) fn new(code: &'static str, field: &str, value: &str, message: &str) -> Self {
        let message = format!("{code}: {message}");
        Self { code, faults: vec![Fault { field: field.into(), value: shorten(value, 120), message }] }
    }

    /// Faults that a reader of manifests found.
    pub(crate) fn found(code: &'static str, faults: Vec<Fault>) -> Self {
        Self { code, faults }
    }

    /// What the log says of it: the code and where, never a value, which may be a secret. The
    /// sender's notice has it all.
    pub(crate) fn reason(&self) -> String {
        let mut fields: Vec<&str> = self.faults.iter().map(|fault| fault.field.as_str()).collect();
        fields.retain(|field| !field.is_empty());
        let reason = if fields.is_empty() {
            self.code.to_owned()
        } else {
            format!("{}: {}", self.code, fields.join(", "))
        };
        shorten(&reason, MAX_REASON)
    }

    /// Another refusal of the same command: the sender sees all faults at once.
    pub(crate) fn and(mut self, other: Option<Self>) -> Self {
        self.faults.extend(other.into_iter().flat_map(|other| other.faults));
        self
    }
}

pub(crate) fn unknown_workload(id: WorkloadId) -> Refusal {
    let id = id.to_string();
    Refusal::new("UnknownWorkload", "workload", &id, "there is no such workload, or it is not yours")
}

/// The text, cut at a character's boundary to at most `most` bytes.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let mut end = most.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_names_the_code_and_the_fields_but_no_value() {
        let refusal = Refusal::new("ForeignNamespace", "namespace", "secret", "is not yours");
        let both = refusal.and(Some(Refusal::new("X", "queue", "secret", "is wrong")));
        assert_eq!(both.reason(), "ForeignNamespace: namespace, queue");
    }

    #[test]
    fn texts_are_cut_at_characters() {
        assert_eq!(shorten("abcdef", 6), "abcdef");
        assert_eq!(shorten("äöü", 5), "ä…");
        assert!(shorten(&"ü".repeat(500), MAX_REASON).len() <= MAX_REASON);
    }
}
