//! The process's metrics, in Prometheus' text format.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// Bounds of histograms, in seconds: from a fold in memory to a server that is away.
const BUCKETS: [f64; 14] =
    [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Where the metrics of this process are collected.
#[derive(Clone)]
pub struct Metrics(Option<PrometheusHandle>);

/// Collects what is counted with the crate `metrics` from the first call on; the same for every caller.
pub fn metrics() -> Metrics {
    static METRICS: OnceLock<Metrics> = OnceLock::new();
    METRICS.get_or_init(install).clone()
}

fn install() -> Metrics {
    let installed =
        PrometheusBuilder::new().set_buckets(&BUCKETS).and_then(PrometheusBuilder::install_recorder);
    match installed {
        Ok(handle) => Metrics(Some(handle)),
        Err(error) => {
            tracing::warn!(%error, "metrics are not collected");
            Metrics(None)
        }
    }
}

impl Metrics {
    /// All metrics, as text.
    #[must_use]
    pub fn render(&self) -> String {
        self.0.as_ref().map(PrometheusHandle::render).unwrap_or_default()
    }

    /// Sums up what histograms have gathered; without it they grow until somebody looks.
    pub(crate) fn sum_up(&self) {
        if let Some(handle) = &self.0 {
            handle.run_upkeep();
        }
    }
}
