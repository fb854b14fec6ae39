//! NATS JetStream: provisioning, fenced publish, durable reads.
