//! The pure half of the agent: desired against observed, into actions.
