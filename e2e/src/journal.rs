//! What pods wrote about themselves to a file outside muster, and what it proves.
//!
//! A line is `<word> <workload> <attempt token> <time>`. Lines are appended whole, so the file's order is the order
//! in which things happened, whatever clocks say: an attempt lived at least from its first to its last line.

use std::collections::BTreeMap;

/// A script that writes start, signs of life, and end; it runs for about `beats` tenths of a second.
#[must_use]
pub fn script(file: &std::path::Path, beats: u32) -> String {
    format!(
        "say() {{ echo \"$1 $MUSTER_WORKLOAD $MUSTER_ATTEMPT $EPOCHREALTIME\" >> '{}'; }}\n\
         say start\nfor beat in {{1..{beats}}}; do sleep 0.1; say alive; done\nsay end\n",
        file.display()
    )
}

/// What the file holds when nothing is wrong.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// Workloads that came to their end.
    pub workloads: usize,
    /// Attempts that began.
    pub attempts: usize,
}

#[derive(Default)]
struct Attempt<'a> {
    token: &'a str,
    first: usize,
    last: usize,
    starts: u32,
    ends: u32,
}

/// Exactly one end a workload, and never two attempts of one at a time.
///
/// # Errors
/// Every sentence that is not true of the file.
pub fn judge(text: &str) -> Result<Found, Vec<String>> {
    let mut wrong = Vec::new();
    let mut workloads: BTreeMap<&str, Vec<Attempt<'_>>> = BTreeMap::new();
    for (line, words) in
        text.lines().enumerate().map(|(n, line)| (n + 1, line.split(' ').collect::<Vec<_>>()))
    {
        let [word @ ("start" | "alive" | "end"), workload, token, _time] = words[..] else {
            wrong.push(format!("line {line} can't be read: {words:?}"));
            continue;
        };
        let attempts = workloads.entry(workload).or_default();
        if !attempts.iter().any(|attempt| attempt.token == token) {
            attempts.push(Attempt { token, first: line, ..Attempt::default() });
        }
        for attempt in attempts.iter_mut().filter(|attempt| attempt.token == token) {
            attempt.last = line;
            attempt.starts += u32::from(word == "start");
            attempt.ends += u32::from(word == "end");
        }
    }
    for (workload, attempts) in &workloads {
        wrong.extend(judge_one(workload, attempts));
    }
    let attempts = workloads.values().map(Vec::len).sum();
    if wrong.is_empty() { Ok(Found { workloads: workloads.len(), attempts }) } else { Err(wrong) }
}

fn judge_one(workload: &str, attempts: &[Attempt<'_>]) -> Vec<String> {
    let mut wrong = Vec::new();
    let ends: u32 = attempts.iter().map(|attempt| attempt.ends).sum();
    if ends != 1 {
        wrong.push(format!("{workload} came to its end {ends} times"));
    }
    for attempt in attempts.iter().filter(|attempt| attempt.starts != 1) {
        wrong.push(format!("{workload}: attempt {} was started {} times", attempt.token, attempt.starts));
    }
    // In the order of their first lines, so each may only overlap its neighbours.
    for pair in attempts.windows(2).filter(|pair| pair[1].first < pair[0].last) {
        wrong.push(format!("{workload}: {} ran while {} did", pair[1].token, pair[0].token));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "start w1 a1 1\nstart w2 b1 1\nalive w1 a1 2\nstart w1 a2 3\nend w1 a2 4\nend w2 b1 5\n";

    #[test]
    fn an_attempt_that_died_before_the_next_began_is_allowed() {
        assert_eq!(judge(GOOD), Ok(Found { workloads: 2, attempts: 3 }));
    }

    #[test]
    fn every_fault_is_found() {
        for (text, sentence) in [
            ("start w1 a1 1\n", "w1 came to its end 0 times"),
            ("start w1 a1 1\nend w1 a1 2\nstart w1 a2 3\nend w1 a2 4\n", "w1 came to its end 2 times"),
            ("start w1 a1 1\nstart w1 a2 2\nalive w1 a1 3\nend w1 a2 4\n", "w1: a2 ran while a1 did"),
            ("start w1 a1 1\nstart w1 a1 1\nend w1 a1 4\n", "w1: attempt a1 was started 2 times"),
            ("start w1 a1 1\nend w1 a1 4\nend w1", "line 3 can't be read"),
        ] {
            let wrong = judge(text).unwrap_err();
            assert!(wrong.iter().any(|found| found.starts_with(sentence)), "{sentence}: {wrong:?}");
        }
    }
}
