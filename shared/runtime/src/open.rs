//! From a folder and a log to a driver that may go on.

use muster_bus::Bus;
use muster_core::{Driver, Identity, Image, ImageMeta, Input, Service, State};
use muster_store::{Store, rebuild};

use crate::source::{Checked, Verdict, compare};
use crate::{HostConfig, RunError};

/// A driver, and what holds its image.
pub(crate) struct Opened<S: Service> {
    pub driver: Driver<S>,
    pub store: Store,
    /// What the log said when it was compared with the image.
    pub log: Checked,
}

/// Opens the image before the log is known: whether it can be read, and is of this build's schema.
pub(crate) fn open_image<S: Service>(host: &HostConfig) -> Result<(Store, Option<Image>), RunError> {
    let path = host.image.as_path();
    if host.rebuild {
        tracing::warn!(path = %path.display(), "--rebuild: the image is thrown away and folded anew");
        return Ok((rebuild(path)?, None));
    }
    let (store, image) = Store::open(path)?;
    match image {
        Some(image) if image.meta.schema != S::State::SCHEMA => {
            let (found, known) = (image.meta.schema, S::State::SCHEMA);
            tracing::warn!(found, known, "the image is of another schema: it is folded anew from the log");
            drop(store);
            Ok((rebuild(path)?, None))
        }
        image => Ok((store, image)),
    }
}

/// Compares the image with the log and restores the driver from it, or begins anew.
pub(crate) async fn open_driver<S: Service>(
    bus: &Bus,
    config: S::Config,
    host: &HostConfig,
    (mut store, mut image): (Store, Option<Image>),
) -> Result<Opened<S>, RunError> {
    let (partition, instance) = (host.partition.clone(), host.instance.clone());
    let identity = Identity { partition, instance, build: host.build.clone() };
    let log = loop {
        let meta = image.as_ref().map_or_else(ImageMeta::default, |image| image.meta.clone());
        match compare(bus, &meta).await? {
            Verdict::Same(log) => break log,
            Verdict::LossAccepted { generation, reason } => {
                let generation = format!("{generation:08x}");
                tracing::warn!(generation, reason, "a loss of the log was accepted: folding it anew");
                drop(store);
                (store, image) = (rebuild(&host.image)?, None);
            }
        }
    };
    let (from, to) = (image.as_ref().map_or(0, |image| image.meta.position), log.last);
    tracing::info!(from, to, "folding the log");
    let mut driver = match image {
        Some(image) => Driver::restore(config, identity, image)
            .map_err(|source| RunError::Rows { path: host.image.clone(), source })?,
        None => Driver::new(config, identity),
    };
    driver.take(None, Input::Head(log.last));
    Ok(Opened { driver, store, log })
}
