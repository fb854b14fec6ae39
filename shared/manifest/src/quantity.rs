//! Quantities: what Kubernetes writes as `500m`, `16Gi` or `2`, as whole numbers.
//!
//! The number is exact: a decimal crate or floats would lose digits, and two builds might
//! round differently. Units are those of `PodSet.requests`: cpu in thousandths of a core;
//! memory, ephemeral-storage, storage and huge pages in bytes; everything else in units.

use std::fmt;

/// The largest amount of one pod: 2^53 (8 PiB of memory). More is a mistake, and up to here JSON is exact.
pub const MAX_PER_POD: i64 = 1 << 53;
/// The largest quota, and the largest total of a workload: 2^56 (64 PiB of memory). 127 such quotas still add up in an i64.
pub const MAX_TOTAL: i64 = 1 << 56;

/// Why a text is no quantity of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Not of the form `<number><suffix>`.
    Form,
    Negative,
    /// Above the limit of the place where it stands, given here.
    TooLarge(i64),
    /// A resource that only comes in whole units.
    Fraction,
    /// More digits after the point than any amount needs.
    TooLong,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Form => f.write_str(
                "is no quantity: a number and one of the suffixes m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei",
            ),
            Wrong::Negative => f.write_str("must not be negative"),
            Wrong::TooLarge(most) => write!(f, "is above {most}, the largest amount that makes sense here"),
            Wrong::Fraction => f.write_str("must be a whole number: this resource cannot be divided"),
            Wrong::TooLong => f.write_str("has more than 18 digits after the point or before it"),
        }
    }
}

impl std::error::Error for Wrong {}

/// What a resource is counted in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Thousandths,
    Bytes,
    Whole,
}

fn unit(resource: &str) -> Unit {
    match resource {
        "cpu" => Unit::Thousandths,
        "memory" | "ephemeral-storage" | "storage" => Unit::Bytes,
        _ if resource.starts_with("hugepages-") => Unit::Bytes,
        _ => Unit::Whole,
    }
}

/// Reads an amount of `resource` for one pod, at most [`MAX_PER_POD`], in the resource's unit.
/// Fractions of a thousandth of a core or of a byte are rounded up, as Kubernetes does.
pub fn parse(resource: &str, text: &str) -> Result<i64, Wrong> {
    parse_up_to(resource, text, MAX_PER_POD)
}

/// As [`parse`], with another limit.
pub fn parse_up_to(resource: &str, text: &str, most: i64) -> Result<i64, Wrong> {
    let unit = unit(resource);
    let scale = if unit == Unit::Thousandths { 3 } else { 0 };
    let number = Number::parse(text)?;
    if number.negative {
        return Err(Wrong::Negative);
    }
    let (amount, exact) = number.times_ten_to(scale).ok_or(Wrong::TooLarge(most))?;
    if !exact && unit == Unit::Whole {
        return Err(Wrong::Fraction);
    }
    i64::try_from(amount).ok().filter(|amount| *amount <= most).ok_or(Wrong::TooLarge(most))
}

/// Reads a plain number (a weight) in thousandths, rounded up.
pub fn parse_milli(text: &str, most: i64) -> Result<i64, Wrong> {
    parse_up_to("cpu", text, most)
}

/// An amount in the resource's unit, as people write it: `1500m`, `2`, `16Gi`, `192G`.
/// [`parse`] reads it back to the same amount.
pub fn format(resource: &str, amount: i64) -> String {
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

const BINARY: [(&str, i64); 6] =
    [("Ei", 1 << 60), ("Pi", 1 << 50), ("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
const DECIMAL: [(&str, i64); 6] = [
    ("E", 1_000_000_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
];

fn shortest(amount: i64, suffixes: &[(&str, i64)]) -> String {
    let fitting = suffixes.iter().find(|(_, factor)| amount != 0 && amount % factor == 0);
    fitting.map_or_else(|| amount.to_string(), |(suffix, factor)| format!("{}{suffix}", amount / factor))
}

/// `digits` × 10^`ten` × 2^`two`.
struct Number {
    negative: bool,
    digits: u128,
    ten: i32,
    two: u32,
}

impl Number {
    fn parse(text: &str) -> Result<Self, Wrong> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(Wrong::Form);
        }
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        let (ten, two) = exponents(suffix).ok_or(Wrong::Form)?;
        if whole.len() > 19 || fraction.len() > 18 {
            return Err(Wrong::TooLong);
        }
        let digits = [whole, fraction].into_iter().flat_map(|part| part.bytes());
        let digits = digits.fold(0_u128, |sum, digit| sum * 10 + u128::from(digit - b'0'));
        let ten = ten - i32::try_from(fraction.len()).map_err(|_| Wrong::TooLong)?;
        Ok(Self { negative: negative && digits > 0, digits, ten, two })
    }

    /// The number × 10^`scale`, rounded up, and whether it needed no rounding; nothing when beyond 2^127.
    fn times_ten_to(&self, scale: i32) -> Option<(u128, bool)> {
        if self.digits == 0 {
            return Some((0, true));
        }
        let ten = self.ten.checked_add(scale)?;
        // 19 + 18 digits and 2^60 do not fit into 128 bits; but then the result is absurd unless it is divided,
        // so the whole part and the fraction go their own ways.
        let divisor = 10_u128.checked_pow(ten.min(0).unsigned_abs());
        let factor = 10_u128.checked_pow(ten.max(0).unsigned_abs())?.checked_mul(1 << self.two)?;
        let Some(divisor) = divisor else { return Some((1, false)) };
        let whole = (self.digits / divisor).checked_mul(factor)?;
        let part = (self.digits % divisor).checked_mul(factor)?;
        let exact = part % divisor == 0;
        Some((whole.checked_add(part.div_ceil(divisor))?, exact))
    }
}

/// A suffix as powers of ten and of two.
fn exponents(suffix: &str) -> Option<(i32, u32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            let good = !digits.is_empty() && digits.len() <= 3 && digits.bytes().all(|b| b.is_ascii_digit());
            (good.then(|| exponent.parse::<i32>().ok())??, 0)
        }
    })
}
