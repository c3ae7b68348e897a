//! What an upstream remembers between requests.

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

/// How much an upstream records about its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Nothing, as in a benchmark.
    Nothing,
    /// Only the tag, the number of tokens and the end of each request, so that the load may have any length.
    Counts,
    /// Whole requests.
    #[default]
    Requests,
}

/// What all connections of an upstream share.
pub struct State {
    /// Script for requests that contain none.
    pub(super) default: Mutex<Script>,
    pub(super) records: Option<record::Records>,
    pub(super) cache: cache::PrefixCache,
    pub(super) breakpoints: BreakpointCache,
    pub(super) open_connections: AtomicUsize,
    pub(super) token_counts: AtomicUsize,
    /// Context window that the upstream reports for its models. By default, it reports none.
    pub(super) window: Mutex<Option<u64>>,
    /// Number of prompts whose tokens are being counted, and the highest number so far.
    pub(super) counting: AtomicUsize,
    pub(super) most_counting: AtomicUsize,
    /// Credential that requests in the Responses and Messages APIs must contain. If it is `None`, any credential is
    /// accepted.
    pub(super) key: Mutex<Option<String>>,
    /// Number of answers so far in the Responses and Messages APIs. Ids are made from it.
    pub(super) answers: AtomicU64,
}

impl State {
    /// Makes the state of a new upstream that records this much.
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

    /// Returns how many requests with this tag arrived before.
    pub(super) fn earlier(&self, tag: &str) -> u64 {
        self.records.as_ref().map_or(0, |records| records.count(tag))
    }

    /// Returns all requests for generations, in the order in which they arrived. If no records are kept, returns none.
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

/// Waits for as long as an exact count takes according to the script.
pub(crate) async fn take_time_to_count(state: &State, script: &Script) {
    let at_once = state.counting.fetch_add(1, Ordering::Relaxed) + 1;
    state.most_counting.fetch_max(at_once, Ordering::Relaxed);
    sleep_ms(script.count_after_ms).await;
    state.counting.fetch_sub(1, Ordering::Relaxed);
}
