//! The member-cluster process: carries out the plan on a backend.
