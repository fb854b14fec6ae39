//! Which requests become workloads, and when they are over.
