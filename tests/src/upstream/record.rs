//! Records of the upstream's requests.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

use super::script::{Script, Usage};

/// Maximum number of records: a test that sends more requests has an error.
const MOST_RECORDS: usize = 200_000;

/// An API of an upstream.
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
    /// Whether the client asked for a stream.
    pub streamed: bool,
    /// Tokens generated so far.
    pub served: Usage,
    /// How and when the request ended.
    pub ended: Option<(End, Instant)>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Completed as the script says.
    Finished,
    /// Ended by the script's fault.
    Failed,
    /// The client closed the connection first.
    ClientLeft,
}

impl Generation {
    /// Returns the request body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Returns whether the request ended in this way.
    pub fn ended_by(&self, end: End) -> bool {
        self.ended.is_some_and(|(how, _)| how == end)
    }
}

/// The record of a request when there are too many to keep whole requests.
#[derive(Clone, Debug)]
pub struct Count {
    /// Tag of the request's script.
    pub tag: String,
    /// Tokens of the prompt, and those generated so far.
    pub served: Usage,
    /// How and when it ended.
    pub ended: Option<(End, Instant)>,
}

/// All records of an upstream: whole requests, or only counts.
pub(super) enum Records {
    /// Whole requests.
    Whole(Mutex<Vec<Arc<Mutex<Generation>>>>),
    Counts(Mutex<Vec<Arc<Mutex<Count>>>>),
}

impl Records {
    /// Returns copies of all whole records.
    pub(super) fn all(&self) -> Vec<Generation> {
        match self {
            Self::Whole(all) => {
                all.lock().unwrap().iter().map(|record| record.lock().unwrap().clone()).collect()
            }
            Self::Counts(_) => panic!("this upstream keeps counts alone"),
        }
    }

    /// Returns copies of all counts.
    pub(super) fn counts(&self) -> Vec<Count> {
        match self {
            Self::Whole(_) => panic!("this upstream keeps whole requests"),
            Self::Counts(all) => {
                all.lock().unwrap().iter().map(|record| record.lock().unwrap().clone()).collect()
            }
        }
    }

    pub(super) fn count(&self, tag: &str) -> u64 {
        match self {
            Self::Whole(all) => {
                all.lock().unwrap().iter().filter(|record| record.lock().unwrap().tag == tag).count() as u64
            }
            Self::Counts(all) => {
                all.lock().unwrap().iter().filter(|record| record.lock().unwrap().tag == tag).count() as u64
            }
        }
    }

    fn add(&self, generation: impl FnOnce() -> Generation, (tag, prompt): (&str, Usage)) -> Record {
        match self {
            Self::Whole(all) => {
                let record = Arc::new(Mutex::new(generation()));
                let mut all = all.lock().unwrap();
                assert!(all.len() < MOST_RECORDS, "more than {MOST_RECORDS} requests");
                all.push(record.clone());
                Record::Whole(record)
            }
            Self::Counts(all) => {
                let count = Count { tag: tag.to_owned(), served: prompt, ended: None };
                let record = Arc::new(Mutex::new(count));
                all.lock().unwrap().push(record.clone());
                Record::Count(record)
            }
        }
    }
}

/// The record of one request.
enum Record {
    Whole(Arc<Mutex<Generation>>),
    Count(Arc<Mutex<Count>>),
}

/// Updates the record of a running request. Dropping it unfinished means that the client left.
pub(super) struct Running(Option<Record>);

impl Running {
    /// Starts a record of a request with this tag and this prompt, if records are kept.
    pub(super) fn start(
        records: Option<&Records>,
        of: (&str, Usage),
        generation: impl FnOnce() -> Generation,
    ) -> Self {
        Self(records.map(|records| records.add(generation, of)))
    }

    /// Records the tokens generated so far.
    pub(super) fn serve(&self, served: Usage) {
        match &self.0 {
            None => {}
            Some(Record::Whole(record)) => record.lock().unwrap().served = served,
            Some(Record::Count(record)) => record.lock().unwrap().served = served,
        }
    }

    /// Records the end. Only the first call has an effect.
    pub(super) fn end(&self, end: End) {
        let end = (end, Instant::now());
        match &self.0 {
            None => {}
            Some(Record::Whole(record)) => drop(record.lock().unwrap().ended.get_or_insert(end)),
            Some(Record::Count(record)) => drop(record.lock().unwrap().ended.get_or_insert(end)),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end(End::ClientLeft);
    }
}
