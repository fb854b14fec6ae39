//! Kubernetes' rules for names, labels and resource names; and the nearest name to a typo.

use std::collections::BTreeMap;

use crate::node::Node;

/// RFC 1123 label: lower case, digits and `-`, at most 63 characters.
pub(crate) fn label(node: &Node<'_>) -> Option<String> {
    dns(node, 63, false)
}

/// RFC 1123 subdomain: labels joined by dots, at most 253 characters.
pub(crate) fn subdomain(node: &Node<'_>) -> Option<String> {
    dns(node, 253, true)
}

fn dns(node: &Node<'_>, most: usize, dots: bool) -> Option<String> {
    let text = node.text()?;
    match wrong_dns(text, most, dots) {
        None => Some(text.to_owned()),
        Some(message) => {
            node.fault(message);
            None
        }
    }
}

/// What is wrong with a DNS name, if anything.
pub(crate) fn wrong_dns(text: &str, most: usize, dots: bool) -> Option<String> {
    if text.is_empty() {
        return Some("must not be empty".into());
    }
    if text.len() > most {
        return Some(format!("is {} characters long; at most {most} are allowed", text.len()));
    }
    let good = |part: &str| {
        let inner = part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        inner && !part.is_empty() && part.len() <= 253 && !part.starts_with('-') && !part.ends_with('-')
    };
    let fits = if dots { text.split('.').all(good) } else { good(text) };
    (!fits).then(|| {
        let also = if dots { ", `-` or `.`" } else { " or `-`" };
        format!("must be lower-case letters, digits{also}, and start and end with a letter or digit")
    })
}

/// `[prefix/]name`, the form of label keys, taint keys and resource names.
pub(crate) fn qualified(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    prefix.is_none_or(|prefix| wrong_dns(prefix, 253, true).is_none())
        && !name.is_empty()
        && label_value(name)
}

/// At most 63 characters of letters, digits, `-`, `_`, `.`; may be empty.
pub(crate) fn label_value(text: &str) -> bool {
    let ends = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && ends(bytes.first())
        && ends(bytes.last())
}

/// A map of labels (or a node selector), each key and value checked.
pub(crate) fn labels(node: &Node<'_>) -> BTreeMap<String, String> {
    let strings = node.strings();
    for (key, value) in &strings {
        let entry = node.entry(key);
        if !qualified(key) {
            entry.fault("the key must be `[domain/]name` of at most 63 letters, digits, `-`, `_` and `.`");
        }
        if !label_value(value) {
            entry.fault("a label's value has at most 63 letters, digits, `-`, `_` and `.`");
        }
    }
    strings
}

/// The known word that a typo most likely meant: at most a third of its letters away.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    if word.len() > 64 {
        return None;
    }
    let lower = word.to_ascii_lowercase();
    known
        .iter()
        .map(|candidate| (distance(&lower, &candidate.to_ascii_lowercase()), *candidate))
        .filter(|(far, candidate)| *far <= (candidate.len() / 3).clamp(1, 4))
        .min_by_key(|(far, _)| *far)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(&b) {
            let change = diagonal + usize::from(x != *y);
            diagonal = *cell;
            left = change.min(left + 1).min(diagonal + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }

    #[test]
    fn a_typo_finds_its_field_and_a_stranger_none() {
        let known = ["entrypoint", "backoffLimit", "suspend"];
        assert_eq!(nearest("entryPoint", &known), Some("entrypoint"));
        assert_eq!(nearest("backofLimits", &known), Some("backoffLimit"));
        assert_eq!(nearest("volumes", &known), None);
    }

    #[test]
    fn names_as_kubernetes_has_them() {
        assert!(wrong_dns("a-1", 63, false).is_none());
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", "ä", &"a".repeat(64)] {
            assert!(wrong_dns(bad, 63, false).is_some(), "{bad}");
        }
        assert!(wrong_dns("a.b-c", 253, true).is_none());
        assert!(wrong_dns("a..b", 253, true).is_some());
        assert!(qualified("nvidia.com/gpu") && qualified("cpu"));
        assert!(!qualified("/gpu") && !qualified("a/b/c") && !qualified("nvidia.com/"));
    }
}
