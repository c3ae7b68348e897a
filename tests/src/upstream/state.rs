//! State that an upstream keeps between requests.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use crate::upstream::{
    cache,
    faults::cut::sleep_ms,
    prompts::breakpoints::BreakpointCache,
    record::{self, Generation},
    script::Script,
};

/// How an upstream records its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Not at all, as for a benchmark.
    Nothing,
    /// Only the tag, the tokens and the end of each request, for a load of any length.
    Counts,
    /// Whole requests.
    #[default]
    Requests,
}

/// State shared by all connections of an upstream.
pub struct State {
    /// Script for requests that have none.
    pub(super) default: Mutex<Script>,
    pub(super) records: Option<record::Records>,
    pub(super) cache: cache::PrefixCache,
    pub(super) breakpoints: BreakpointCache,
    pub(super) open_connections: AtomicUsize,
    pub(super) token_counts: AtomicUsize,
    /// Context window that the upstream reports for its models; none by default.
    pub(super) window: Mutex<Option<u64>>,
    /// Number of counts in progress, and the highest number so far.
    pub(super) counting: AtomicUsize,
    pub(super) most_counting: AtomicUsize,
    /// Credential that the Responses and Messages APIs demand; if `None`, they accept any.
    pub(super) key: Mutex<Option<String>>,
    /// Number of answers in the Responses and Messages APIs; their ids are made from it.
    pub(super) answers: AtomicU64,
}

impl State {
    /// Returns the state of a new upstream that keeps these records.
    pub fn new(default: Script, keep: Keep) -> Self {
        Self {
            default: Mutex::new(default),
            records: match keep {
                Keep::Nothing => None,
                Keep::Counts => Some(record::Records::Counts(Mutex::default())),
                Keep::Requests => Some(record::Records::Whole(Mutex::default())),
            },
            cache: cache::PrefixCache::default(),
            breakpoints: BreakpointCache::default(),
            open_connections: AtomicUsize::new(0),
            token_counts: AtomicUsize::new(0),
            window: Mutex::new(None),
            counting: AtomicUsize::new(0),
            most_counting: AtomicUsize::new(0),
            key: Mutex::new(None),
            answers: AtomicU64::new(0),
        }
    }

    /// Returns the number of earlier requests with this tag.
    pub(super) fn earlier(&self, tag: &str) -> u64 {
        self.records.as_ref().map_or(0, |records| records.count(tag))
    }

    /// Returns all requests for generations in order of arrival; empty if no records are kept.
    pub fn generations(&self) -> Vec<Generation> {
        self.records.as_ref().map_or_else(Vec::new, record::Records::all)
    }

    pub(super) fn window(&self) -> Option<u64> {
        *self.window.lock().unwrap()
    }

    pub(super) fn default_script(&self) -> Script {
        self.default.lock().unwrap().clone()
    }
}

/// Waits for the time that the script's counts take.
pub(crate) async fn take_time_to_count(state: &State, script: &Script) {
    let at_once = state.counting.fetch_add(1, Ordering::Relaxed) + 1;
    state.most_counting.fetch_max(at_once, Ordering::Relaxed);
    sleep_ms(script.count_after_ms).await;
    state.counting.fetch_sub(1, Ordering::Relaxed);
}
