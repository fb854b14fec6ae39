//! A cursor over a JSON value that knows its path and collects faults, so that readers read
//! on after a mistake and users see all their mistakes at once.

use std::cell::RefCell;
use std::collections::BTreeMap;

use muster_proto::Fault;
use serde_json::{Map, Value};

use crate::names;

/// More would not help anyone, and a rejection must stay small.
const MAX_FAULTS: usize = 64;
const MAX_SHOWN: usize = 120;
/// Fields whose values may be secrets: shown to nobody, not even in a rejection.
const SECRET: [&str; 8] =
    ["env", "envFrom", "args", "command", "entrypoint", "runtimeEnvYAML", "runtimeEnv", "redis-password"];

#[derive(Default)]
pub(crate) struct Faults(RefCell<Vec<Fault>>);

impl Faults {
    pub(crate) fn push(&self, field: &str, value: &str, message: impl Into<String>) {
        let mut faults = self.0.borrow_mut();
        let message = message.into();
        // Two rules may read the same field.
        let known = faults.iter().any(|fault| fault.field == field && fault.message == message);
        if faults.len() < MAX_FAULTS && !known {
            let hidden = !value.is_empty() && is_secret(field);
            let value = if hidden { "(not shown)".into() } else { shorten(value, MAX_SHOWN) };
            faults.push(Fault { field: field.into(), value, message });
        }
    }

    fn full(&self) -> bool {
        self.0.borrow().len() >= MAX_FAULTS
    }

    fn has(&self, field: &str) -> bool {
        self.0.borrow().iter().any(|fault| fault.field == field)
    }

    pub(crate) fn into_vec(self) -> Vec<Fault> {
        self.0.into_inner()
    }

    /// The value, if nothing was wrong.
    pub(crate) fn judge<T>(self, value: Option<T>) -> Result<T, Vec<Fault>> {
        let mut faults = self.0.into_inner();
        match value {
            Some(value) if faults.is_empty() => Ok(value),
            _ if faults.is_empty() => Err(vec![fault("", "", "the file could not be read")]),
            _ => {
                if faults.len() == MAX_FAULTS {
                    faults.push(fault("", "", "there are more mistakes; mend these first"));
                }
                Err(faults)
            }
        }
    }
}

pub(crate) fn fault(field: &str, value: &str, message: &str) -> Fault {
    Fault { field: field.into(), value: value.into(), message: message.into() }
}

pub(crate) fn is_secret(path: &str) -> bool {
    path.split(['.', '[']).any(|part| SECRET.contains(&part))
}

fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

/// A place in the file; it may be absent. `null` counts as absent, as in Kubernetes.
#[derive(Clone)]
pub(crate) struct Node<'a> {
    value: Option<&'a Value>,
    path: String,
    faults: &'a Faults,
}

impl<'a> Node<'a> {
    pub(crate) fn root(value: &'a Value, faults: &'a Faults) -> Self {
        Self { value: Some(value), path: String::new(), faults }
    }

    pub(crate) fn faults(&self) -> &'a Faults {
        self.faults
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn raw(&self) -> Option<&'a Value> {
        self.value
    }

    pub(crate) fn exists(&self) -> bool {
        self.value.is_some()
    }

    pub(crate) fn fault(&self, message: impl Into<String>) {
        let shown = match self.value {
            None => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        };
        self.faults.push(&self.path, &shown, message);
    }

    /// The field `name`; of anything but an object: absent (the type is judged by [`Self::object`]).
    pub(crate) fn field(&self, name: &str) -> Node<'a> {
        let value = self.value.and_then(|value| value.get(name)).filter(|value| !value.is_null());
        Node { value, path: join(&self.path, name), faults: self.faults }
    }

    pub(crate) fn require(self) -> Self {
        if !self.exists() {
            self.fault("is missing");
        }
        self
    }

    /// A field that may not be there at all.
    pub(crate) fn refuse(self, message: &str) {
        if self.exists() {
            self.fault(message);
        }
    }

    pub(crate) fn object(&self) -> Option<&'a Map<String, Value>> {
        match self.value? {
            Value::Object(map) => Some(map),
            _ => {
                self.fault("must be a map of fields");
                None
            }
        }
    }

    pub(crate) fn items(&self) -> Vec<Node<'a>> {
        match self.value {
            None => Vec::new(),
            Some(Value::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(index, item)| Node {
                    value: Some(item).filter(|item| !item.is_null()),
                    path: format!("{}[{index}]", self.path),
                    faults: self.faults,
                })
                .collect(),
            Some(_) => {
                self.fault("must be a list");
                Vec::new()
            }
        }
    }

    pub(crate) fn text(&self) -> Option<&'a str> {
        match self.value? {
            Value::String(text) => Some(text),
            Value::Number(_) | Value::Bool(_) => {
                self.fault("must be a string: put it in quotes");
                None
            }
            _ => {
                self.fault("must be a string");
                None
            }
        }
    }

    /// Numbers are accepted where Kubernetes wants a quantity.
    pub(crate) fn quantity(&self) -> Option<String> {
        match self.value? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => {
                self.fault("must be a quantity like 4, 500m or 16Gi");
                None
            }
        }
    }

    pub(crate) fn flag(&self) -> Option<bool> {
        match self.value? {
            Value::Bool(flag) => Some(*flag),
            _ => {
                self.fault("must be true or false, without quotes");
                None
            }
        }
    }

    pub(crate) fn int(&self, least: i64, most: i64) -> Option<i64> {
        let number = match self.value? {
            Value::Number(number) => number,
            Value::String(_) => {
                self.fault("must be a number, without quotes");
                return None;
            }
            _ => {
                self.fault("must be a number");
                return None;
            }
        };
        match number.as_i64() {
            Some(value) if (least..=most).contains(&value) => Some(value),
            Some(value) if value < least => {
                self.fault(format!("must be at least {least}"));
                None
            }
            _ if number.is_f64() && !(number.as_f64().is_some_and(|value| value.fract() == 0.0)) => {
                self.fault("must be a whole number");
                None
            }
            _ => {
                self.fault(format!("must be at most {most}"));
                None
            }
        }
    }

    pub(crate) fn count(&self, most: u32) -> Option<u32> {
        self.int(0, i64::from(most)).and_then(|value| u32::try_from(value).ok())
    }

    pub(crate) fn one_of(&self, choices: &[&'static str]) -> Option<&'static str> {
        let text = self.text()?;
        let found = choices.iter().copied().find(|choice| *choice == text);
        if found.is_none() {
            self.fault(format!("must be one of {}", choices.join(", ")));
        }
        found
    }

    /// A map of strings to strings, whatever the strings are.
    pub(crate) fn strings(&self) -> BTreeMap<String, String> {
        let mut strings = BTreeMap::new();
        for key in self.object().into_iter().flat_map(Map::keys) {
            let node = self.entry(key);
            if let Some(text) = node.text() {
                strings.insert(key.clone(), text.to_owned());
            } else if !node.exists() {
                node.fault("must be a string");
            }
        }
        strings
    }

    /// As [`Self::field`] for keys that may hold dots and slashes: shown as `labels["a/b"]`.
    pub(crate) fn entry(&self, key: &str) -> Node<'a> {
        let plain = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        let path = if plain { join(&self.path, key) } else { format!("{}[{key:?}]", self.path) };
        Node { path, ..self.field(key) }
    }

    /// Refuses fields that are not among `known`, with the nearest known one. A field that has a
    /// fault already (a wrong form that was named) gets no second one.
    pub(crate) fn only(&self, known: &[&str]) {
        for key in self.object().into_iter().flat_map(Map::keys) {
            if self.faults.full() {
                return;
            }
            if !known.contains(&key.as_str()) && !self.faults.has(self.entry(key).path()) {
                let mend = match names::nearest(key, known) {
                    Some(near) => format!("is no known field; did you mean {near}?"),
                    None => format!("is no known field here; known: {}", known.join(", ")),
                };
                // Without its value: the field may be a misspelt `entrypoint` or `env`.
                self.faults.push(self.entry(key).path(), "", mend);
            }
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.into() } else { format!("{path}.{name}") }
}
