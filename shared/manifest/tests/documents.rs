//! Bytes to values: YAML as Kubernetes reads it, JSON, and what neither may do.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use muster_manifest::document::{MAX_BYTES, documents, parse};
use serde_json::json;

fn message(text: &[u8]) -> String {
    let faults = parse(text).expect_err("must be refused");
    assert_eq!(faults.len(), 1);
    faults[0].message.clone()
}

#[test]
fn scalars_as_kubernetes_reads_them() {
    let value = parse(
        b"a: \"1\"\nb: 1\nc: yes\nd: 0644\ne: 0.5\nf: ~\ng:\nh: 12e3x\ni: '0644'\nj: 1.2.3\nk: |\n  x\n",
    )
    .unwrap();
    let wanted = json!({
        "a": "1", "b": 1, "c": true, "d": 420, "e": 0.5, "f": null, "g": null, "h": "12e3x", "i": "0644", "j": "1.2.3", "k": "x\n"
    });
    assert_eq!(value, wanted);
}

#[test]
fn json_and_yaml_say_the_same() {
    let json = br#" {"kind": "Job", "n": [1, -2, 3.5, true, null], "s": "\ud83d\ude00\/"}"#;
    let yaml = "kind: Job\nn: [1, -2, 3.5, true, null]\ns: \"😀/\"\n";
    assert_eq!(parse(json).unwrap(), parse(yaml.as_bytes()).unwrap());
    assert_eq!(parse(b"{kind: Job}").unwrap(), json!({"kind": "Job"}), "flow style");
    assert_eq!(parse("\u{feff}kind: Job".as_bytes()).unwrap(), json!({"kind": "Job"}), "a byte order mark");
}

#[test]
fn anchors_and_merges_within_reason() {
    let value = parse(b"a: &x {k: v}\nb: *x\nc: {<<: *x, l: w}\n").unwrap();
    assert_eq!(value, json!({"a": {"k": "v"}, "b": {"k": "v"}, "c": {"k": "v", "l": "w"}}));
}

#[test]
fn many_documents_and_lists() {
    let text = "---\nkind: A\n---\n# nothing\n---\napiVersion: v1\nkind: List\nitems: [{kind: B}, {kind: C}]\n---\nkind: D\n";
    assert_eq!(
        documents(text.as_bytes()).unwrap(),
        [json!({"kind": "A"}), json!({"kind": "B"}), json!({"kind": "C"}), json!({"kind": "D"})]
    );
    assert_eq!(documents(b"{\"a\":1}\n{\"b\":2}").unwrap(), [json!({"a": 1}), json!({"b": 2})]);
    assert_eq!(documents(b"").unwrap(), Vec::<serde_json::Value>::new());
    let split = documents(text.as_bytes()).unwrap();
    assert_eq!(parse(&serde_json::to_vec(&split[1]).unwrap()).unwrap(), split[1], "each is a manifest");
}

#[test]
fn what_is_no_manifest_is_refused_with_its_place() {
    assert!(message(b"").contains("empty"));
    assert!(message(b"# only a comment").contains("empty"));
    assert!(message(b"a: 1\n---\nb: 2").contains("2 documents"));
    assert!(message(b"a: [1\nb: 2").contains("is no YAML"));
    assert!(message(b"a: 1\nb: [1\n").contains("line"));
    assert!(message(b"{\"a\": 1,}x").contains("is no JSON"));
    assert!(message(b"a: 1\na: 2").contains("\"a\" stands twice"));
    assert!(message(b"{\"a\": {\"b\": 1, \"b\": 2}}").contains("\"b\" stands twice"));
    assert!(message(b"a: \xff").contains("UTF-8"));
    assert!(message(b"a: .nan").contains("finite"));
    assert!(message(&vec![b' '; MAX_BYTES + 1]).contains("at most 262144"));
    assert!(message("[".repeat(100_000).as_bytes()).contains("is no"));
    assert!(message(b"a:\na:\n").contains("twice"));
    let deep: String = (0..200).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert!(message(deep.as_bytes()).contains("more depth"));
}

#[test]
fn aliases_cannot_make_a_small_file_huge() {
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x]\n");
    for level in 1..20 {
        let before = format!("*a{},", level - 1).repeat(8);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", before.trim_end_matches(',')));
    }
    assert!(message(bomb.as_bytes()).contains("aliases"));
    let long =
        format!("a: &a {}\nb: [{}]\n", "x".repeat(128 * 1024), "*a,".repeat(200).trim_end_matches(','));
    match parse(long.as_bytes()) {
        Err(_) => {}
        Ok(value) => {
            let size = value.to_string().len();
            assert!(size <= 8 * MAX_BYTES, "became {size} bytes");
        }
    }
}
