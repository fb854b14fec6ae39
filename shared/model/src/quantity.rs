//! What amounts are counted in, and how people write them. Reading what people write is
//! muster-manifest's.

/// What a resource is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Thousandths,
    Bytes,
    Whole,
}

/// The unit of a resource's amounts.
#[must_use]
pub fn unit(resource: &str) -> Unit {
    match resource {
        "cpu" => Unit::Thousandths,
        "memory" | "ephemeral-storage" | "storage" => Unit::Bytes,
        _ if resource.starts_with("hugepages-") => Unit::Bytes,
        _ => Unit::Whole,
    }
}

/// An amount in the resource's unit, as people write it: `1500m`, `2`, `16Gi`, `192G`.
/// Reading it as a Kubernetes quantity gives the same amount.
#[must_use]
pub fn format(resource: &str, amount: impl Into<i128>) -> String {
    let amount = amount.into();
    match unit(resource) {
        Unit::Whole => amount.to_string(),
        Unit::Thousandths if amount % 1000 == 0 => (amount / 1000).to_string(),
        Unit::Thousandths => format!("{amount}m"),
        Unit::Bytes => {
            let (binary, decimal) = (shortest(amount, &BINARY), shortest(amount, &DECIMAL));
            if decimal.len() < binary.len() { decimal } else { binary }
        }
    }
}

const BINARY: [(&str, i128); 6] =
    [("Ei", 1 << 60), ("Pi", 1 << 50), ("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
const DECIMAL: [(&str, i128); 6] = [
    ("E", 1_000_000_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
];

fn shortest(amount: i128, suffixes: &[(&str, i128)]) -> String {
    let fitting = suffixes.iter().find(|(_, factor)| amount != 0 && amount % factor == 0);
    fitting.map_or_else(|| amount.to_string(), |(suffix, factor)| format!("{}{suffix}", amount / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_kubernetes_does() {
        let written =
            [("cpu", 1500_i64), ("cpu", 2000), ("memory", 16 << 30), ("memory", 192_000_000_000), ("gpu", 8)];
        let texts: Vec<String> = written.iter().map(|(resource, amount)| format(resource, *amount)).collect();
        assert_eq!(texts, ["1500m", "2", "16Gi", "192G", "8"]);
    }
}
