//! Waiting for a condition instead of sleeping and hoping.

use std::future::Future;
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// Waits until the condition holds, looking every 10 ms.
///
/// # Panics
/// It does not hold within `timeout`.
#[track_caller]
pub fn eventually<C, F>(timeout: Duration, mut condition: C) -> impl Future<Output = ()>
where
    C: FnMut() -> F,
    F: Future<Output = bool>,
{
    let caller = std::panic::Location::caller();
    async move {
        let start = Instant::now();
        while !condition().await {
            assert!(start.elapsed() < timeout, "{caller}: not so within {timeout:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A port of loopback that was free a moment ago. Prefer port 0 where the program under test can take it:
/// another process may be faster.
///
/// # Panics
/// The system has no free port.
#[must_use]
pub fn free_port() -> u16 {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    port.unwrap_or_else(|error| panic!("no free port: {error}")).port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_condition_that_comes_true_ends_the_wait() {
        let mut left = 3;
        eventually(Duration::from_secs(5), || {
            left -= 1;
            let done = left == 0;
            async move { done }
        })
        .await;
        assert_eq!(left, 0);
    }

    #[tokio::test]
    #[should_panic(expected = "not so within")]
    async fn a_condition_that_never_comes_true_fails_the_test() {
        eventually(Duration::from_millis(30), || async { false }).await;
    }
}
