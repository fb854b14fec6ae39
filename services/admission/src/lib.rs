//! Quota: who may run next.
