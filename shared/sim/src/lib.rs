//! The simulator: the same Drivers on an in-memory log, under every fault.
