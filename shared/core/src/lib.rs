//! The contract of a service and the pure host that drives it.
