//! Quantities: what Kubernetes writes as `500m`, `16Gi` or `2`, as whole numbers.
//!
//! `rust_decimal` reads the number and `kube_quantity` the suffix; the two are multiplied here, in
//! integers. The crate reads the number too, but through an f64 (`72057594037927935` ends in 6), and
//! compares through an f32 (`16Gi` is less than `17179869184`): no base for quota that is exact.
//!
//! Units are those of `PodSet.requests`: cpu in thousandths of a core; memory,
//! ephemeral-storage, storage and huge pages in bytes; everything else in units.

use std::fmt;

use kube_quantity::{ParseQuantityError, ParsedQuantity};
pub use muster_model::quantity::format;
use muster_model::quantity::{Unit, unit};
use rust_decimal::Decimal;
use rust_decimal::prelude::FromPrimitive;

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
    /// More digits than any amount needs.
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
            Wrong::TooLong => f.write_str("has more than 28 digits, or more than 18 after the point"),
        }
    }
}

impl std::error::Error for Wrong {}

/// Reads an amount of `resource` for one pod, at most [`MAX_PER_POD`], in the resource's unit.
/// Fractions of a thousandth of a core or of a byte are rounded up, as Kubernetes does.
pub fn parse(resource: &str, text: &str) -> Result<i64, Wrong> {
    parse_up_to(resource, text, MAX_PER_POD)
}

/// As [`parse`], with another limit.
pub fn parse_up_to(resource: &str, text: &str, most: i64) -> Result<i64, Wrong> {
    let unit = unit(resource);
    let places = if unit == Unit::Thousandths { 3 } else { 0 };
    let (number, suffix) = split(text)?;
    let one = one(suffix)?;
    if number.is_zero() {
        return Ok(0);
    }
    if number.is_sign_negative() {
        return Err(Wrong::Negative);
    }
    let product = one.and_then(|one| product(number, one, places));
    let (amount, exact) = product.ok_or(Wrong::TooLarge(most))?;
    if !exact && unit == Unit::Whole {
        return Err(Wrong::Fraction);
    }
    i64::try_from(amount).ok().filter(|amount| *amount <= most).ok_or(Wrong::TooLarge(most))
}

/// Reads a plain number (a weight) in thousandths, rounded up.
pub fn parse_milli(text: &str, most: i64) -> Result<i64, Wrong> {
    parse_up_to("cpu", text, most)
}

/// A text as its number and its suffix.
fn split(text: &str) -> Result<(Decimal, &str), Wrong> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(unsigned.len());
    let (digits, suffix) = unsigned.split_at(end);
    let mut number = match Decimal::from_str_exact(digits) {
        Ok(number) => number.normalize(),
        // The crate's errors do not tell these apart.
        Err(_) if digits.matches('.').count() < 2 && digits.len() > 1 => return Err(Wrong::TooLong),
        Err(_) => return Err(Wrong::Form),
    };
    if number.scale() > 18 {
        return Err(Wrong::TooLong);
    }
    number.set_sign_negative(text.starts_with('-'));
    Ok((number, suffix))
}

/// What 1 with this suffix is: a power of ten or of 1024. Zero when below 10^-28, nothing when above 2^96.
fn one(suffix: &str) -> Result<Option<Decimal>, Wrong> {
    // Where the crate differs from Kubernetes: it takes the E of exa for an exponent without digits,
    // and lets an exponent and a suffix stand together.
    let (suffix, more) = match suffix {
        "E" => ("P", 1000),
        "Ei" => ("Pi", 1024),
        _ => (suffix, 1),
    };
    if suffix.starts_with(['e', 'E']) && !suffix.ends_with(|c: char| c.is_ascii_digit()) {
        return Err(Wrong::Form);
    }
    let one = match ParsedQuantity::try_from(format!("1{suffix}")) {
        Ok(one) => one.to_bytes_f64().and_then(Decimal::from_f64),
        Err(ParseQuantityError::DecimalParsingFailed) => return Ok(None),
        Err(_) => return Err(Wrong::Form),
    };
    // An f64 holds powers of two, but not all of ten; what it adds to these is no digit of theirs.
    let one = if suffix.ends_with('i') { one } else { one.and_then(|one| one.round_sf(1)) };
    Ok(one.and_then(|one| one.checked_mul(Decimal::from(more))).map(|one| one.normalize()))
}

/// `number` × `one` × 10^`places`, both above or at zero, rounded up, and whether it needed no
/// rounding; nothing when beyond 2^127.
fn product(number: Decimal, one: Decimal, places: u32) -> Option<(u128, bool)> {
    if one.is_zero() {
        return Some((1, false));
    }
    let (digits, factor) = (number.mantissa().unsigned_abs(), one.mantissa().unsigned_abs());
    let scale = number.scale() + one.scale();
    let divisor = 10_u128.checked_pow(scale.saturating_sub(places));
    let factor = factor.checked_mul(10_u128.checked_pow(places.saturating_sub(scale))?)?;
    // 28 digits and 2^60 do not fit into 128 bits; but then the result is absurd unless it is divided,
    // so the whole part and the fraction go their own ways.
    let Some(divisor) = divisor else { return Some((1, false)) };
    let whole = (digits / divisor).checked_mul(factor)?;
    let part = (digits % divisor).checked_mul(factor)?;
    Some((whole.checked_add(part.div_ceil(divisor))?, part % divisor == 0))
}
