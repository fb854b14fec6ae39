//! Nothing in a file makes a reader panic, hang or return numbers that overflow.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use muster_manifest::workload::{self, Defaults, MAX_PODS};
use muster_manifest::{document, execution, policy, quantity};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Map, Value};

const SEEDS: [&str; 3] = [
    include_str!("manifests/rayjob.yaml"),
    include_str!("manifests/job.yaml"),
    include_str!("manifests/cluster-queue.yaml"),
];

/// Reads bytes with everything there is; what is accepted must be in range.
fn read_all(bytes: &[u8]) {
    let _ = execution::read(bytes);
    if let Ok(value) = document::parse(bytes) {
        read_value(&value);
    }
    let _ = document::documents(bytes);
}

fn read_value(value: &Value) {
    let defaults = Defaults { name_suffix: "0".into(), fallback_queue: "q".into(), ..Defaults::default() };
    match workload::read(value, &defaults) {
        Err(faults) => assert!(!faults.is_empty() && faults.len() <= 65),
        Ok(spec) => {
            let pods: u64 = spec.pod_sets.iter().map(|set| u64::from(set.count)).sum();
            assert!(pods <= u64::from(MAX_PODS));
            for set in &spec.pod_sets {
                for amount in set.requests.values() {
                    let total = amount.checked_mul(i64::from(set.count)).expect("no overflow");
                    assert!(*amount > 0 && total <= quantity::MAX_TOTAL);
                }
            }
            execution::read(value.to_string().as_bytes()).expect("what is accepted can be run");
        }
    }
    if let Err(faults) = policy::read(value, "") {
        assert!(!faults.is_empty());
    }
}

/// Values that users and attackers put where others belong.
fn odd() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3..3_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[-+0-9.eEkMGTPimn]{0,12}".prop_map(Value::from),
        "\\PC{0,40}".prop_map(Value::from),
        "[a-z-]{50,70}".prop_map(Value::from),
        Just(Value::Array(vec![])),
        Just(Value::Array(vec![Value::Null, Value::Null])),
        Just(Value::Object(Map::new())),
    ]
}

/// Puts `odd` in the place of the `at`-th part of the value.
fn mutate(value: &mut Value, at: &mut usize, odd: &Value) {
    if *at == 0 {
        *value = odd.clone();
    }
    *at = at.wrapping_sub(1);
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| mutate(item, at, odd)),
        Value::Object(map) => map.values_mut().for_each(|item| mutate(item, at, odd)),
        _ => {}
    }
}

fn parts(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(parts).sum(),
        Value::Object(map) => map.values().map(parts).sum(),
        _ => 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        read_all(&bytes);
    }

    #[test]
    fn yaml_like_text(text in "[a-c:\\-\\[\\]{},&*!|>#\"'?% \n\t<~0-9]{0,200}") {
        read_all(text.as_bytes());
    }

    #[test]
    fn files_with_flipped_bytes(seed in 0..SEEDS.len(), flips in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4)) {
        let mut bytes = SEEDS[seed].as_bytes().to_vec();
        for (index, byte) in flips {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        read_all(&bytes);
    }

    #[test]
    fn files_with_odd_values(seed in 0..SEEDS.len(), mutations in prop::collection::vec((any::<Index>(), odd()), 1..4)) {
        let mut value = document::parse(SEEDS[seed].as_bytes()).unwrap();
        for (index, odd) in &mutations {
            let mut at = index.index(parts(&value));
            mutate(&mut value, &mut at, odd);
        }
        read_value(&value);
    }

    #[test]
    fn counts_never_overflow(replicas in 0..=i32::MAX, hosts in 1..=i32::MAX, memory in 0..=i64::MAX) {
        let text = SEEDS[0]
            .replace("        replicas: 2\n        minReplicas: 1\n        maxReplicas: 4\n        numOfHosts: 4", &format!("        replicas: {replicas}\n        numOfHosts: {hosts}"))
            .replace("192G", &memory.to_string());
        read_value(&document::parse(text.as_bytes()).unwrap());
    }
}
