//! Bytes to JSON values: YAML as Kubernetes reads it (version 1.1: `yes` is a boolean, `0644`
//! is octal) or JSON. A key given twice is a mistake in both.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::DuplicateKeyPolicy;
use serde_saphyr::options::AliasLimits;

use crate::Fault;
use crate::node::fault;

/// The largest manifest, in bytes: one that a request may carry.
pub const MAX_BYTES: usize = 256 * 1024;
/// The largest file of many documents that [`documents`] splits, in bytes.
pub const MAX_FILE_BYTES: usize = 4 * 1024 * 1024;
/// Aliases copy what they name: a small file could become a huge value.
const MAX_ALIASES: usize = 256;
const MAX_DEPTH: usize = 64;
/// No manifest has a value every few bytes; this bounds what aliases and merges make of it.
const BYTES_PER_NODE: usize = 5;

/// Reads the one document of a manifest. Errors: above [`MAX_BYTES`], not UTF-8, no YAML or JSON
/// (with line and column), a key twice, aliases beyond reason, no document or more than one.
pub fn parse(text: &[u8]) -> Result<Value, Vec<Fault>> {
    let mut all = split(text, MAX_BYTES)?;
    match (all.pop(), all.len()) {
        (Some(value), 0) => Ok(value),
        (None, _) => Err(vec![fault("", "", "the manifest is empty")]),
        (_, more) => {
            let message = format!("the manifest holds {} documents; a request carries one", more + 1);
            Err(vec![fault("", "", &message)])
        }
    }
}

/// Splits a file into its documents; an object of kind `List` becomes its items. Empty documents
/// are left out, so the result may be empty. Each value, written as JSON, is a manifest for [`parse`].
/// Errors as [`parse`], with the limit [`MAX_FILE_BYTES`].
pub fn documents(text: &[u8]) -> Result<Vec<Value>, Vec<Fault>> {
    let mut flat = Vec::new();
    for document in split(text, MAX_FILE_BYTES)? {
        match document {
            Value::Object(mut list) if list.get("kind").and_then(Value::as_str) == Some("List") => {
                match list.remove("items") {
                    Some(Value::Array(items)) => flat.extend(items),
                    None | Some(Value::Null) => {}
                    Some(_) => return Err(vec![fault("items", "", "must be a list")]),
                }
            }
            other => flat.push(other),
        }
    }
    Ok(flat)
}

fn split(text: &[u8], most: usize) -> Result<Vec<Value>, Vec<Fault>> {
    if text.len() > most {
        let message = format!("the manifest has {} bytes; at most {most} are allowed", text.len());
        return Err(vec![fault("", "", &message)]);
    }
    let text = std::str::from_utf8(text)
        .map_err(|error| vec![fault("", "", &format!("is not UTF-8 after {} bytes", error.valid_up_to()))])?;
    let text = text.trim_start_matches('\u{feff}');
    // JSON is nearly a part of YAML, but its escapes are not: what looks like JSON is tried as JSON first.
    let json = text.trim_start().starts_with(['{', '[']).then(|| read_json(text));
    match json {
        Some(Ok(values)) => Ok(values),
        Some(Err(wrong)) => {
            read_yaml(text, most).map_err(|_| vec![fault("", "", &format!("is no JSON: {wrong}"))])
        }
        None => read_yaml(text, most).map_err(|wrong| vec![fault("", "", &no_yaml(&wrong))]),
    }
}

fn no_yaml(wrong: &str) -> String {
    match wrong.strip_prefix("budget breached: ") {
        Some(what) => format!("has more depth, values or aliases than a manifest may have: {what}"),
        None => format!("is no YAML: {wrong}"),
    }
}

fn read_json(text: &str) -> Result<Vec<Value>, serde_json::Error> {
    let stream = serde_json::Deserializer::from_str(text).into_iter::<Unique>();
    stream.map(|item| item.map(|Unique(value)| value)).collect()
}

fn read_yaml(text: &str, most: usize) -> Result<Vec<Value>, String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_aliases: MAX_ALIASES,
            max_anchors: MAX_ALIASES,
            max_merge_keys: MAX_ALIASES,
            max_nodes: (most / BYTES_PER_NODE).min(200_000),
            max_documents: 1_000,
            max_total_scalar_bytes: most.saturating_mul(2),
            max_recorded_anchor_events: 100_000,
            max_recorded_anchor_bytes: most.saturating_mul(2),
        },
        alias_limits: AliasLimits::default(),
        duplicate_keys: DuplicateKeyPolicy::PassThrough, // to `Unique`, which refuses them
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    let values: Vec<Unique> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| error.render())?;
    Ok(values.into_iter().map(|Unique(value)| value).collect())
}

/// A JSON value whose maps have each key once.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Unique)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of YAML or JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Unique(item)) = access.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let Unique(value) = access.next_value()?;
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("the key {key:?} stands twice in one map")));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
