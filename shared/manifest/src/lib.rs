//! Users' files: job manifests and Kueue policies, read into scheduling fields.
