//! How much is measured, and for how long.

use std::time::Duration;

use tests::harness::Dialect;

use crate::measure::load::Work;

/// Numbers of whole requests in flight at once.
pub(super) const CONCURRENCIES: [u32; 4] = [1, 16, 64, 256];
/// The concurrency for which most figures are reported.
pub(super) const MANY: u32 = 64;
/// HTTP/2 connections that carry all load.
pub(super) const SHARED: [u32; 2] = [1, 2];
/// Load before each measurement, so that connections and caches are warm.
pub(super) const WARM_UP: Duration = Duration::from_millis(500);
/// Tokens of each whole answer: about 0.7 kB of JSON.
pub(super) const TOKENS: u32 = 75;
/// Streams take longer than whole answers and vary less, so they are measured only every third round.
pub(super) const STREAMED_EACH: u32 = 3;
/// A measurement is quiet if other machines on the host took no larger share of the CPU time.
pub(super) const QUIET: f64 = 0.03;
/// Number of quiet rounds from which the others are left out.
pub(super) const ENOUGH_QUIET: usize = 3;
/// Dialects whose streams are measured in addition to chat.
pub(super) const OTHER_DIALECTS: [Dialect; 2] = [Dialect::Responses, Dialect::Messages];
/// Time between two tokens of a slow stream.
pub(super) const SLOW_PACE: Duration = Duration::from_secs(5);
/// Entries of a journal that fills up quickly: the lowest setting allowed.
pub(super) const SMALL_JOURNAL: u32 = 1_000;
/// API keys from which requests draw at random.
pub(super) const KEYS: usize = 1_000;
/// Time for the allocator to return memory and for holds to be settled.
pub(super) const IDLE: Duration = Duration::from_secs(5);

/// Extent of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Seconds of each measurement.
    pub seconds: u32,
    /// Measurements of each kind and system.
    pub rounds: u32,
    /// Chunks of each stream.
    pub chunks: u32,
    /// Slow streams that are kept open at once.
    pub held: usize,
    /// Requests that a gateway serves before its memory is measured.
    pub requests: u32,
}

impl Plan {
    /// The full extent, which takes about ten minutes.
    pub const FULL: Self = Self { seconds: 1, rounds: 9, chunks: 200, held: 1_000, requests: 100_000 };
    /// A short extent of about a minute, with rough figures.
    pub const QUICK: Self = Self { seconds: 1, rounds: 1, chunks: 50, held: 200, requests: 5_000 };

    pub(super) const fn streamed(&self, dialect: Dialect) -> Work {
        Work::Streamed { dialect, at_once: MANY, chunks: self.chunks }
    }
}

/// A process of a system.
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) pid: u32,
}
