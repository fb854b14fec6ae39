//! A service's state is the sum of its tables.

use crate::AnyTable;

/// What a service knows, folded from the log alone.
pub trait State: Default {
    /// Raised when rows change their encoding: an image of another number is rebuilt from the log.
    const SCHEMA: u32;

    /// Visits every table, stored ones and indexes, always in the same order: load, flush, hash
    /// and overlay all go through this one list.
    fn tables(&mut self, visit: &mut dyn FnMut(&mut dyn AnyTable));

    /// Rebuilds the indexes after the stored tables were loaded from an image.
    fn reindex(&mut self) {}
}

/// The state hash: the sum of the stored tables' hashes, modulo 2^128.
pub fn hash_of<S: State>(state: &mut S) -> u128 {
    let mut sum = 0u128;
    state.tables(&mut |table| {
        if table.is_stored() {
            sum = sum.wrapping_add(table.hash());
        }
    });
    sum
}
