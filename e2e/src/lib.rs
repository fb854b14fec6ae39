//! End-to-end tests with real servers and processes.
