//! The services behind one face: what drives them need not know which one it is.

use muster_admission::Admission;
use muster_core::{
    CorruptRow, Driver, Effect, Identity, Image, ImageMeta, Input, Position, Service, Stop, Timestamp,
};
use muster_desk::Desk;
use muster_federation::Federation;
use muster_queue::Queue;

use crate::options::Options;

/// A service and the partition it decides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Queue,
    Admission,
    Federation,
    Desk(String),
}

/// A driver, whatever its service.
pub trait Host {
    fn step(&mut self, now: Option<Timestamp>, input: Input) -> Vec<Effect>;
    fn position(&mut self) -> Position;
    fn meta(&self) -> &ImageMeta;
    fn stopped(&self) -> Option<&Stop>;
    /// The REQUESTS sequence after which it reads; none: it reads none, or has no room.
    fn requests_after(&self) -> Option<u64>;
}

impl<S: Service> Host for Driver<S> {
    fn step(&mut self, now: Option<Timestamp>, input: Input) -> Vec<Effect> {
        Driver::step(self, now, input)
    }

    fn position(&mut self) -> Position {
        Driver::position(self)
    }

    fn meta(&self) -> &ImageMeta {
        Driver::meta(self)
    }

    fn stopped(&self) -> Option<&Stop> {
        Driver::stopped(self)
    }

    fn requests_after(&self) -> Option<u64> {
        S::requests_after(self.state()).filter(|_| S::has_room(self.inbox()))
    }
}

fn boxed<S: Service>(
    config: S::Config,
    partition: &str,
    instance: String,
    image: Option<Image>,
) -> Result<Box<dyn Host>, CorruptRow> {
    let identity = Identity { partition: partition.to_owned(), instance, build: "sim".to_owned() };
    Ok(match image {
        None => Box::new(Driver::<S>::new(config, identity)),
        Some(image) => Box::new(Driver::<S>::restore(config, identity, image)?),
    })
}

/// A process of this service, from an image or from nothing.
///
/// # Errors
/// When the image is not one that this service wrote.
pub fn open(
    kind: &Kind,
    options: &Options,
    instance: String,
    image: Option<Image>,
) -> Result<Box<dyn Host>, CorruptRow> {
    match kind {
        Kind::Queue => {
            let config = muster_queue::Config {
                recovery_deadline_us: 2_000_000,
                backoff_max_us: 20_000_000,
                commit_on_grant: options.commit_on_grant,
                ..Default::default()
            };
            boxed::<Queue>(config, "0", instance, image)
        }
        Kind::Admission => boxed::<Admission>(Default::default(), "0", instance, image),
        Kind::Federation => {
            let config = muster_federation::Config {
                offer_timeout_us: 10_000_000,
                suspect_after_us: options.suspect_after_us,
                ..Default::default()
            };
            boxed::<Federation>(config, "0", instance, image)
        }
        Kind::Desk(cluster) => boxed::<Desk>(muster_desk::Config::new(cluster), cluster, instance, image),
    }
}
