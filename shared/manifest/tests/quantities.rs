//! Quantities: Kubernetes' grammar, rounding up, refusals; and that display loses nothing.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use muster_manifest::quantity::{MAX_PER_POD, MAX_TOTAL, Wrong, format, parse, parse_up_to};
use proptest::prelude::*;

#[test]
fn amounts_in_the_units_of_their_resource() {
    let table = [
        ("cpu", "1", 1000),
        ("cpu", "500m", 500),
        ("cpu", "0.1", 100),
        ("cpu", ".5", 500),
        ("cpu", "5.", 5000),
        ("cpu", "+2", 2000),
        ("cpu", "1e3", 1_000_000),
        ("cpu", "1E-3", 1),
        ("cpu", "0.0001", 1),
        ("cpu", "100u", 1),
        ("cpu", "1001u", 2),
        ("cpu", "1n", 1),
        ("cpu", "1e-900", 1),
        ("cpu", "2k", 2_000_000),
        ("cpu", "-0", 0),
        ("memory", "16Gi", 16 << 30),
        ("memory", "1.5Gi", 3 << 29),
        ("memory", "192G", 192_000_000_000),
        ("memory", "128974848", 128_974_848),
        ("memory", "129e6", 129_000_000),
        ("memory", "100m", 1),
        ("memory", "0.1Ki", 103),
        ("ephemeral-storage", "1Ti", 1 << 40),
        ("hugepages-2Mi", "4Mi", 4 << 20),
        ("nvidia.com/gpu", "8", 8),
        ("nvidia.com/gpu", "8.0", 8),
        ("nvidia.com/gpu", "4000m", 4),
        ("pods", "1k", 1000),
        ("memory", "0.30000000000000004", 1),
        ("memory", "9007199254740992", MAX_PER_POD),
    ];
    for (resource, text, amount) in table {
        assert_eq!(parse(resource, text), Ok(amount), "{text} of {resource}");
    }
}

/// Every suffix, and numbers that an f64 cannot hold: `kube_quantity` alone fails at most of these.
#[test]
fn every_suffix_is_exact() {
    let decimal = ["", "k", "M", "G", "T", "P", "E"].into_iter().zip(0_u32..);
    for (suffix, power) in decimal {
        let text = format!("0.07205759403792793{suffix}");
        let exact = 7_205_759_403_792_793_u128 * 1000_u128.pow(power);
        let amount = i64::try_from(exact.div_ceil(10_u128.pow(17))).unwrap();
        assert_eq!(parse_up_to("memory", &text, i64::MAX), Ok(amount), "{text}");
    }
    for (suffix, power) in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].into_iter().zip(1_u32..) {
        let text = format!("7{suffix}");
        assert_eq!(parse_up_to("memory", &text, i64::MAX), Ok(7 << (10 * power)), "{text}");
        // One part in 10^17 above 7: it takes a byte more.
        let text = format!("7.00000000000000001{suffix}");
        let more = 1024_i128.pow(power) / 10_i128.pow(17) + 1;
        let amount = i64::try_from((7_i128 << (10 * power)) + more).unwrap();
        assert_eq!(parse_up_to("memory", &text, i64::MAX), Ok(amount), "{text}");
    }
    for (suffix, power) in ["m", "u", "n"].into_iter().zip(1_u32..) {
        let text = format!("{}{suffix}", 9_007_199_254_740_993_u64);
        let amount = 9_007_199_254_740_993_i64 * 1000;
        let amount = (amount + 1000_i64.pow(power) - 1) / 1000_i64.pow(power);
        assert_eq!(
            parse("cpu", &text),
            if power == 1 { Err(Wrong::TooLarge(MAX_PER_POD)) } else { Ok(amount) }
        );
    }
    for exponent in -18..=15 {
        let text = format!("7{}e{exponent}", "0".repeat(usize::try_from(-exponent.min(0)).unwrap()));
        let amount = 7 * 10_i64.pow(u32::try_from(exponent.max(0)).unwrap());
        assert_eq!(parse("memory", &text), Ok(amount), "{text}");
    }
    assert_eq!(parse_up_to("memory", "72057594037927935", MAX_TOTAL), Ok(MAX_TOTAL - 1));
    assert_eq!(parse_up_to("memory", "0.0625Ei", MAX_TOTAL), Ok(MAX_TOTAL));
    assert_eq!(parse("memory", "9007199254740991.0000000001"), Ok(MAX_PER_POD));
    assert_eq!(parse("memory", "0.000000000000000001e25"), Ok(10_000_000));
}

#[test]
fn what_is_no_amount_is_refused() {
    for text in [
        "", " ", "one", "1 ", " 1", "1GB", "1gi", "1Kib", "1..5", "1.5.0", "--1", "1e", "1e+", "0x10", "NaN",
        "inf", ".", "1m5", "Ki", "+", "-", "..", "1_000", "1e3Ki", "1e3m", "1E3E", "1i", "1e5.", "1²",
    ] {
        assert_eq!(parse("cpu", text), Err(Wrong::Form), "{text:?}");
    }
    assert_eq!(parse("cpu", "-1"), Err(Wrong::Negative));
    assert_eq!(parse("memory", "-0.5Gi"), Err(Wrong::Negative));
    assert_eq!(parse("nvidia.com/gpu", "0.5"), Err(Wrong::Fraction));
    assert_eq!(parse("nvidia.com/gpu", "1m"), Err(Wrong::Fraction));
    let too_large = Err(Wrong::TooLarge(MAX_PER_POD));
    for text in ["9007199254740993", "8Ei", "9E", "1e30", "1e999", "9999999999999999999Ei"] {
        assert_eq!(parse("memory", text), too_large, "{text}");
    }
    assert_eq!(parse("memory", &"9".repeat(40)), Err(Wrong::TooLong));
    assert_eq!(parse("memory", &format!("0.{}1", "0".repeat(40))), Err(Wrong::TooLong));
    assert_eq!(parse("memory", "0.1234567890123456789"), Err(Wrong::TooLong));
    assert_eq!(parse_up_to("memory", "64Pi", MAX_TOTAL), Ok(MAX_TOTAL));
}

#[test]
fn amounts_as_people_write_them() {
    let table = [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("memory", 16 << 30, "16Gi"),
        ("memory", 3 << 29, "1536Mi"),
        ("memory", 192_000_000_000_i64, "192G"),
        ("memory", 0, "0"),
        ("memory", 1025, "1025"),
        ("nvidia.com/gpu", 8, "8"),
    ];
    for (resource, amount, text) in table {
        assert_eq!(format(resource, amount), text);
    }
}

fn resource() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "cpu",
        "memory",
        "ephemeral-storage",
        "hugepages-2Mi",
        "nvidia.com/gpu",
        "pods",
    ])
}

proptest! {
    #[test]
    fn display_loses_nothing(resource in resource(), amount in 0..=MAX_PER_POD, shift in 0..50_u32) {
        let amount = amount >> shift << (shift / 2);
        prop_assume!(amount <= MAX_PER_POD);
        prop_assert_eq!(parse(resource, &format(resource, amount)), Ok(amount));
    }

    #[test]
    fn whatever_is_written_gives_an_amount_in_range_or_a_refusal(resource in resource(), text in "[-+]?[0-9.]{0,40}[a-zA-Z]{0,2}[-+]?[0-9]{0,5}") {
        if let Ok(amount) = parse(resource, &text) {
            prop_assert!((0..=MAX_PER_POD).contains(&amount));
        }
    }

    #[test]
    fn no_text_makes_it_panic(resource in resource(), text in any::<String>()) {
        let _ = parse(resource, &text);
    }

    #[test]
    fn decimal_places_are_rounded_up(whole in 0..1_000_000_i64, places in 0..1_000_000_000_i64) {
        let milli = places / 1_000_000 + i64::from(places % 1_000_000 != 0);
        prop_assert_eq!(parse("cpu", &format!("{whole}.{places:09}")), Ok(whole * 1000 + milli));
        prop_assert_eq!(parse("memory", &format!("{whole}.{places:09}")), Ok(whole + i64::from(places != 0)));
    }
}
