//! The words of the domain: quantities, pod sets, and the one lifecycle fold.
