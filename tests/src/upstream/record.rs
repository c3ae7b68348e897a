//! What the upstream remembers of each request.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

use super::script::{Script, Usage};

/// Requests remembered, at most: a test that sends more has lost its way.
const MOST_RECORDS: usize = 200_000;

/// A chat request and what came of it.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The tag of its script.
    pub tag: String,
    /// The script.
    pub script: Script,
    /// The headers that came.
    pub headers: HeaderMap,
    /// The body that came.
    pub body: Bytes,
    /// Whether it was to be streamed.
    pub streamed: bool,
    /// Tokens so far, in truth.
    pub served: Usage,
    /// What was last said of them.
    pub reported: Option<Usage>,
    /// How and when it ended.
    pub ended: Option<(End, Instant)>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Finished,
    /// By its script's fault.
    Failed,
    /// The client closed the connection before.
    ClientLeft,
}

impl Generation {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Whether it ended like this.
    pub fn ended_by(&self, end: End) -> bool {
        self.ended.is_some_and(|(how, _)| how == end)
    }
}

/// All of them.
#[derive(Default)]
pub(super) struct Records(Mutex<Vec<Arc<Mutex<Generation>>>>);

impl Records {
    /// Copies of all records.
    pub(super) fn all(&self) -> Vec<Generation> {
        self.0.lock().unwrap().iter().map(|record| record.lock().unwrap().clone()).collect()
    }

    /// How many have this tag.
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

/// Keeps the record of a running request; dropping it unfinished means that the client left.
pub(super) struct Running(Option<Arc<Mutex<Generation>>>);

impl Running {
    /// Starts a record, where records are kept.
    pub(super) fn start(records: Option<&Records>, generation: impl FnOnce() -> Generation) -> Self {
        Self(records.map(|records| records.add(generation())))
    }

    /// Notes what was served by now, and what was said of it.
    pub(super) fn serve(&self, served: Usage, reported: Option<Usage>) {
        if let Some(record) = &self.0 {
            let mut record = record.lock().unwrap();
            record.served = served;
            record.reported = reported.or(record.reported);
        }
    }

    /// Notes the end; the first one counts.
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
