//! Which cluster: offers, commits, attempts.
