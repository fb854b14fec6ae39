//! Read models for the CLI and audits; decides nothing.
