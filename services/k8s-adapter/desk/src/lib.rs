//! The hub half of the adapter: desired state out, checked reports in.
