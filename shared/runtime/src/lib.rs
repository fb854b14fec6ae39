//! Tokio drives a pure Driver: fold, decide, publish, commit.
