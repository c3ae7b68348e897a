//! Records that the upstream keeps of its requests.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

use super::script::{Script, Usage};

/// Largest number of records: a test that sends more requests is wrong.
const MOST_RECORDS: usize = 200_000;

/// Tokens that a stream may generate after the gateway ended it and before the upstream notices.
pub const TOKENS_IN_TRANSIT: u64 = 5;

/// An API in which an upstream is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// OpenAI's chat completions.
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's Messages.
    Messages,
}

impl Api {
    /// Every API.
    pub const ALL: [Self; 3] = [Self::Chat, Self::Responses, Self::Messages];
}

/// A request for a generation and its outcome.
#[derive(Clone, Debug)]
pub struct Generation {
    /// API of the request.
    pub api: Api,
    /// Path and query of the request.
    pub path: String,
    /// Tag of the request's script.
    pub tag: String,
    /// Script of the request.
    pub script: Script,
    /// Request headers.
    pub headers: HeaderMap,
    /// Request body.
    pub body: Bytes,
    /// The client asked for a stream.
    pub streamed: bool,
    /// Tokens generated so far.
    pub served: Usage,
    /// Manner and time of its end.
    pub ended: Option<(End, Instant)>,
}

/// Manner in which a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Completed as the script demands.
    Finished,
    /// Ended by the script's fault.
    Failed,
    /// The client closed the connection first.
    ClientLeft,
}

impl Generation {
    /// Request body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Returns whether the request ended in this manner.
    pub fn ended_by(&self, end: End) -> bool {
        self.ended.is_some_and(|(how, _)| how == end)
    }
}

/// All records of an upstream.
#[derive(Default)]
pub(super) struct Records(Mutex<Vec<Arc<Mutex<Generation>>>>);

impl Records {
    /// Copies of all records.
    pub(super) fn all(&self) -> Vec<Generation> {
        self.0.lock().unwrap().iter().map(|record| record.lock().unwrap().clone()).collect()
    }

    /// Number of records with this tag.
    pub(super) fn count(&self, tag: &str) -> u64 {
        self.0.lock().unwrap().iter().filter(|record| record.lock().unwrap().tag == tag).count() as u64
    }

    fn add(&self, generation: Generation) -> Arc<Mutex<Generation>> {
        let record = Arc::new(Mutex::new(generation));
        let mut all = self.0.lock().unwrap();
        assert!(all.len() < MOST_RECORDS, "more than {MOST_RECORDS} requests");
        all.push(record.clone());
        record
    }
}

/// Updates the record of a running request. Dropping it unfinished means that the client left.
pub(super) struct Running(Option<Arc<Mutex<Generation>>>);

impl Running {
    /// Starts a record, if records are kept.
    pub(super) fn start(records: Option<&Records>, generation: impl FnOnce() -> Generation) -> Self {
        Self(records.map(|records| records.add(generation())))
    }

    /// Records the tokens generated so far.
    pub(super) fn serve(&self, served: Usage) {
        if let Some(record) = &self.0 {
            record.lock().unwrap().served = served;
        }
    }

    /// Records the end. Only the first call counts.
    pub(super) fn end(&self, end: End) {
        if let Some(record) = &self.0 {
            record.lock().unwrap().ended.get_or_insert_with(|| (end, Instant::now()));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end(End::ClientLeft);
    }
}
