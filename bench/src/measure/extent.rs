use std::time::Duration;

use tests::harness::Dialect;

use crate::measure::load::Work;

/// Numbers of concurrent whole requests.
pub(super) const CONCURRENCIES: [u32; 4] = [1, 16, 64, 256];
/// The concurrency for which most figures are reported.
pub(super) const MANY: u32 = 64;
/// Numbers of HTTP/2 connections over which the whole load is sent.
pub(super) const SHARED: [u32; 2] = [1, 2];
/// Duration of the load before each measurement, so that connections and caches are warm.
pub(super) const WARM_UP: Duration = Duration::from_millis(500);
/// Tokens in each whole answer: about 0.7 kB of JSON.
pub(super) const TOKENS: u32 = 75;
/// Streams take longer than whole answers and vary less, so they are measured only every third round.
pub(super) const STREAMED_EACH: u32 = 3;
/// A measurement is quiet if other machines on the host took at most this share of the CPU time.
pub(super) const QUIET: f64 = 0.03;
/// If there are this many quiet rounds, the other rounds are left out.
pub(super) const ENOUGH_QUIET: usize = 3;
/// Dialects whose streams are measured in addition to chat.
pub(super) const OTHER_DIALECTS: [Dialect; 2] = [Dialect::Responses, Dialect::Messages];
/// Time between two tokens of a slow stream.
pub(super) const SLOW_PACE: Duration = Duration::from_secs(5);
/// Maximum number of entries in a journal that soon fills up: the lowest value allowed.
pub(super) const SMALL_JOURNAL: u32 = 1_000;
/// Number of API keys from which requests draw at random.
pub(super) const KEYS: usize = 1_000;
/// Time within which the allocator returns memory and holds are settled.
pub(super) const IDLE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Duration of each measurement in seconds.
    pub seconds: u32,
    /// Number of measurements of each kind and system.
    pub rounds: u32,
    /// Number of chunks in each stream.
    pub chunks: u32,
    /// Number of slow streams that are open at once.
    pub held: usize,
    /// Number of requests that a gateway serves before its memory is measured.
    pub requests: u32,
}

impl Plan {
    /// The full extent: about ten minutes.
    pub const FULL: Self = Self { seconds: 1, rounds: 9, chunks: 200, held: 1_000, requests: 100_000 };
    /// A short extent: about a minute, with rough figures.
    pub const QUICK: Self = Self { seconds: 1, rounds: 1, chunks: 50, held: 200, requests: 5_000 };

    pub(super) const fn streamed(&self, dialect: Dialect) -> Work {
        Work::Streamed { dialect, at_once: MANY, chunks: self.chunks }
    }
}

pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) pid: u32,
}
