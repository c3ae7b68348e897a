//! Server-sent events, read as they arrive.

use std::collections::VecDeque;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::time::timeout;

use crate::harness::patience::PATIENCE;

/// One item of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A JSON object.
    Data(Value),
    /// `data: [DONE]`
    Done,
    Comment(String),
}

/// A reader of the events in a response's body.
pub struct Events {
    body: Incoming,
    /// Bytes of an event that is not yet complete.
    partial: Vec<u8>,
    ready: VecDeque<Event>,
    ended: bool,
}

impl Events {
    /// Returns a reader of this body.
    pub fn new(body: Incoming) -> Self {
        Self { body, partial: Vec::new(), ready: VecDeque::new(), ended: false }
    }

    /// Reads the next event. Returns `None` at the end, and an error if the connection is cut or nothing arrives in
    /// time.
    pub async fn next(&mut self) -> Option<Result<Event, String>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if self.ended {
                return None;
            }
            match timeout(PATIENCE, self.body.frame()).await {
                Err(_) => return Some(Err("nothing comes any more".into())),
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.partial.extend_from_slice(&data);
                        self.split();
                    }
                }
                Ok(Some(Err(e))) => {
                    self.ended = true;
                    return Some(Err(format!("the connection is cut: {e:?}")));
                }
                Ok(None) => {
                    self.ended = true;
                    assert!(self.partial.is_empty(), "the stream ends within an event: {:?}", self.partial);
                }
            }
        }
    }

    /// Removes the complete events from the buffer and queues them. Each event of the gateway is one line and ends with
    /// a blank line.
    fn split(&mut self) {
        while let Some(end) = self.partial.windows(2).position(|pair| pair == b"\n\n") {
            let rest = self.partial.split_off(end + 2);
            let event = std::mem::replace(&mut self.partial, rest);
            let line = std::str::from_utf8(&event[..end]).expect("events are text");
            self.ready.push_back(parse(line));
        }
    }
}

fn parse(line: &str) -> Event {
    if let Some(comment) = line.strip_prefix(':') {
        return Event::Comment(comment.trim().to_owned());
    }
    // Dialects with named events give each name twice.
    let (name, line) = match line.strip_prefix("event: ").and_then(|line| line.split_once('\n')) {
        Some((name, line)) => (Some(name), line),
        None => (None, line),
    };
    let data = line.strip_prefix("data: ").unwrap_or_else(|| panic!("no line of data: {line:?}"));
    assert!(!data.contains('\n'), "an event of several lines: {line:?}");
    match data {
        "[DONE]" => Event::Done,
        json => {
            let data: Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("no JSON, {e}: {json}"));
            assert_eq!(name, data["type"].as_str(), "{line}");
            Event::Data(data)
        }
    }
}
