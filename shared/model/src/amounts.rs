//! Quantities: how much of each resource, in whole units.

use std::collections::BTreeMap;

use borsh::{BorshDeserialize, BorshSerialize};

/// Amounts by resource name: cpu in thousandths of a core, memory and ephemeral-storage in
/// bytes, everything else in units. A resource that is not named amounts to 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Amounts(pub BTreeMap<String, i64>);

/// A sum or product beyond what an i64 holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the amount of {resource} is beyond {}", i64::MAX)]
pub struct Overflow {
    pub resource: String,
}

impl Amounts {
    #[must_use]
    pub fn of(&self, resource: &str) -> i64 {
        self.0.get(resource).copied().unwrap_or(0)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Adds `times` × `other`.
    ///
    /// # Errors
    /// [`Overflow`], and `self` is unchanged.
    pub fn add(&mut self, other: &Self, times: i64) -> Result<(), Overflow> {
        let mut sum = self.clone();
        for (resource, amount) in other.iter() {
            let overflow = || Overflow { resource: resource.to_owned() };
            let more = amount.checked_mul(times).ok_or_else(overflow)?;
            let total = sum.of(resource).checked_add(more).ok_or_else(overflow)?;
            sum.0.insert(resource.to_owned(), total);
        }
        *self = sum;
        Ok(())
    }

    /// The first resource of which `self` needs more than `free` has, with how much is short.
    #[must_use]
    pub fn short_of(&self, free: &Self) -> Option<(&str, i64)> {
        self.iter().find_map(|(resource, need)| {
            let short = need.saturating_sub(free.of(resource));
            (need > 0 && short > 0).then_some((resource, short))
        })
    }
}

impl From<BTreeMap<String, i64>> for Amounts {
    fn from(amounts: BTreeMap<String, i64>) -> Self {
        Self(amounts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(list: &[(&str, i64)]) -> Amounts {
        Amounts(list.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect())
    }

    #[test]
    fn a_sum_beyond_i64_is_an_error_and_changes_nothing() {
        let mut sum = amounts(&[("cpu", 1), ("gpu", i64::MAX)]);
        let before = sum.clone();
        assert_eq!(sum.add(&amounts(&[("cpu", 1), ("gpu", 1)]), 1), Err(Overflow { resource: "gpu".into() }));
        assert_eq!(sum, before);
        assert!(sum.add(&amounts(&[("cpu", i64::MAX / 2)]), 3).is_err());
    }

    #[test]
    fn what_is_short_is_named() {
        let need = amounts(&[("cpu", 2), ("gpu", 4), ("zero", 0)]);
        assert_eq!(need.short_of(&amounts(&[("cpu", 2), ("gpu", 1)])), Some(("gpu", 3)));
        assert_eq!(need.short_of(&amounts(&[("cpu", 2), ("gpu", 4)])), None);
    }
}
