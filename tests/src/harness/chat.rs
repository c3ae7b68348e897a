//! Chat requests: builds them, sends them, reads their answers whole or as a stream, and enters them in the book.

use std::{collections::VecDeque, fmt, sync::Arc, time::Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use http_body_util::Full;
use serde_json::{Value, json};
use shared::money::NanoUsd;
use tokio::time::timeout_at;

use super::{
    book::{ApiKey, Book, Entry},
    catalogue::FLASH,
    clients::{
        client::{Answer, Http, nanos},
        dialect::Dialect,
        events::{Event, Events},
    },
    patience::SERVER_PATIENCE,
};
use crate::upstream::Script;

/// A chat request that has not been sent.
#[derive(Clone)]
pub struct Call {
    http: Http,
    book: Arc<Book>,
    base: String,
    dialect: Dialect,
    key: ApiKey,
    headers: HeaderMap,
    /// Range of the cost, if the response does not report the cost and the upstream's count is not what will be billed.
    range: Option<(NanoUsd, NanoUsd)>,
    /// Tag of the request's script.
    pub tag: String,
    pub body: Value,
}

impl Call {
    pub(super) fn new(http: Http, book: Arc<Book>, base: String, key: &ApiKey, script: &Script) -> Self {
        let mut headers = HeaderMap::new();
        let credential = HeaderValue::try_from(format!("Bearer {}", key.secret)).unwrap();
        headers.insert(header::AUTHORIZATION, credential);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = json!({"model": FLASH, "messages": [{"role": "user", "content": script.message()}]});
        let (key, dialect, tag) = (key.clone(), Dialect::Chat, script.tag.clone());
        Self { http, book, base, dialect, key, headers, range: None, tag, body }
    }

    /// Sends the call with another client.
    #[must_use]
    pub fn over(mut self, http: &Http) -> Self {
        self.http = http.clone();
        self
    }

    /// Converts the call to another dialect. The body stays a chat request until the call is sent.
    #[must_use]
    pub fn speaking(self, dialect: Dialect) -> Self {
        Self { dialect, ..self }
    }

    /// Sets a member of the body.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.body[name] = value.into();
        self
    }

    /// Removes a member of the body.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.body.as_object_mut().unwrap().remove(name);
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(HeaderName::from_static(name), value.parse().unwrap());
        self
    }

    /// Sets the range of the cost, for a response that does not report the cost.
    #[must_use]
    pub fn costing(self, least: NanoUsd, most: NanoUsd) -> Self {
        Self { range: Some((least, most)), ..self }
    }

    /// Sends the request and reads the whole answer, successful or not.
    pub async fn send(self) -> Answer {
        self.try_send().await.unwrap_or_else(|e| panic!("no answer: {e}"))
    }

    /// Sends the request; returns an error if no answer comes.
    pub async fn try_send(self) -> Result<Answer, String> {
        let entry = self.enter();
        let answer = Answer::read(self.http.open(self.request()).await?).await?;
        if answer.status == 200 && answer.header("content-type").starts_with("application/json") {
            entry.tell_of(&answer.json()["usage"]);
        }
        Ok(answer)
    }

    /// Sends the request as a stream that reports its usage.
    pub async fn stream(self) -> Stream {
        self.try_stream().await.unwrap_or_else(|answer| panic!("no stream: {answer}"))
    }

    /// Sends the request as a stream that does not report its usage.
    pub async fn stream_without_usage(self) -> Stream {
        let opened = self.with("stream", true).open().await.expect("there is an answer");
        opened.unwrap_or_else(|answer| panic!("no stream: {answer}"))
    }

    /// Opens a stream; returns the answer if the request is refused.
    pub async fn try_stream(self) -> Result<Stream, Answer> {
        self.reach_stream().await.expect("there is an answer")
    }

    /// Opens a stream; returns an error if no answer comes.
    pub async fn reach_stream(self) -> Result<Result<Stream, Answer>, String> {
        self.with("stream", true).with("stream_options", json!({"include_usage": true})).open().await
    }

    async fn open(self) -> Result<Result<Stream, Answer>, String> {
        let entry = self.enter();
        let response = self.http.open(self.request()).await?;
        if response.status() != 200 {
            return Answer::read(response).await.map(Err);
        }
        let (head, body) = response.into_parts();
        let ended = Ended::default();
        let (events, dialect, read) = (Events::new(body), self.dialect, VecDeque::new());
        let opened = Instant::now();
        Ok(Ok(Stream { headers: head.headers, dialect, events, read, tag: self.tag, entry, ended, opened }))
    }

    fn enter(&self) -> Entry {
        let model = self.body["model"].as_str().unwrap_or_default();
        self.book.enter(&self.url(), &self.key.id, &self.tag, model, self.range)
    }

    fn request(&self) -> Request<Full<Bytes>> {
        let mut request = Request::post(self.url());
        request.headers_mut().unwrap().clone_from(&self.headers);
        request.body(Full::new(Bytes::from(self.dialect.body(&self.body).to_string()))).unwrap()
    }

    fn url(&self) -> String {
        format!("{}{}", self.base, self.dialect.path())
    }
}

/// An open stream. Dropping it closes the connection, as a client that leaves does.
pub struct Stream {
    pub headers: HeaderMap,
    /// Tag of the request's script.
    pub tag: String,
    dialect: Dialect,
    events: Events,
    /// Events that have been received but not processed.
    read: VecDeque<Event>,
    entry: Entry,
    ended: Ended,
    opened: Instant,
}

/// Everything that was read from a stream.
#[derive(Clone, Default)]
pub struct Ended {
    pub chunks: Vec<Value>,
    /// The error event at the end.
    pub error: Option<Value>,
    /// Whether `[DONE]` was received.
    pub done: bool,
    pub comments: Vec<String>,
    /// Error of the connection, if it was cut.
    pub broken: Option<String>,
}

impl Stream {
    /// Reads until this many tokens in total have arrived.
    pub async fn read_tokens(&mut self, tokens: usize) {
        while self.ended.tokens() < tokens {
            let ended = &self.ended;
            assert!(ended.error.is_none() && !ended.done && ended.broken.is_none(), "ended early: {ended:?}");
            assert!(self.read_one().await, "ended early: {:?}", self.ended);
        }
    }

    /// Reads until a choice is finished.
    pub async fn read_finish(&mut self) {
        while self.ended.finish_reasons().is_empty() {
            assert!(self.read_one().await, "ended early: {:?}", self.ended);
        }
    }

    /// Reads until a comment arrives.
    pub async fn read_comment(&mut self) -> String {
        let known = self.ended.comments.len();
        while self.ended.comments.len() == known {
            assert!(self.read_one().await, "ended early: {:?}", self.ended);
        }
        self.ended.comments[known].clone()
    }

    /// Reads until an event, in the dialect's own format, satisfies the condition. Returns false if the stream ends
    /// first.
    pub async fn read_until(&mut self, mut wanted: impl FnMut(&Value) -> bool) -> bool {
        loop {
            while !self.read.is_empty() {
                self.read_one().await;
            }
            let Some(event) = self.events.next().await else { return false };
            let event = event.unwrap_or_else(|broken| panic!("{broken}"));
            let found = matches!(&event, Event::Data(data) if wanted(data));
            self.read.extend(self.dialect.chat_events(event));
            if found {
                return true;
            }
        }
    }

    /// Reads the stream to its end.
    pub async fn rest(mut self) -> Ended {
        while self.read_one().await {}
        self.ended
    }

    /// Reads the stream to its end, or until this time.
    pub async fn rest_until(mut self, until: Instant) -> Ended {
        while timeout_at(until.into(), self.read_one()).await.unwrap_or(false) {}
        self.ended
    }

    /// Returns everything read so far.
    pub fn so_far(&self) -> &Ended {
        &self.ended
    }

    /// Returns the value of a header; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Reads one event; returns false at the end.
    async fn read_one(&mut self) -> bool {
        // The stream may contain an endless number of comments.
        assert!(self.opened.elapsed() < SERVER_PATIENCE, "the stream does not end: {:?}", self.ended);
        let event = loop {
            if let Some(event) = self.read.pop_front() {
                break Ok(event);
            }
            match self.events.next().await {
                None => return false,
                Some(Ok(event)) => self.read.extend(self.dialect.chat_events(event)),
                Some(Err(broken)) => break Err(broken),
            }
        };
        let ended = &mut self.ended;
        assert!(!ended.done && ended.error.is_none(), "{event:?} comes after the end: {ended:?}");
        match event {
            Ok(Event::Data(mut data)) if data.get("error").is_some() => {
                ended.error = Some(data["error"].take());
            }
            Ok(Event::Data(chunk)) => {
                self.entry.tell_of(&chunk["usage"]);
                ended.chunks.push(chunk);
            }
            Ok(Event::Done) => ended.done = true,
            Ok(Event::Comment(comment)) => ended.comments.push(comment),
            Err(broken) => {
                ended.broken = Some(broken);
                return false;
            }
        }
        true
    }
}

impl Ended {
    /// Concatenates this member of all deltas of the first choice.
    pub fn joined(&self, name: &str) -> String {
        self.deltas(0).filter_map(|delta| delta[name].as_str()).collect()
    }

    /// Returns the text of the first choice.
    pub fn text(&self) -> String {
        self.joined("content")
    }

    pub fn deltas(&self, choice: u64) -> impl Iterator<Item = &Value> {
        self.choices().filter(move |c| c["index"] == choice).map(|c| &c["delta"])
    }

    fn choices(&self) -> impl Iterator<Item = &Value> {
        self.chunks.iter().filter_map(|chunk| chunk["choices"].as_array()).flatten()
    }

    /// Returns the number of deltas with content, over all choices: the scripted upstream sends one per token.
    pub fn tokens(&self) -> usize {
        let says = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty()) || value.is_array();
        let members = ["content", "reasoning_content", "tool_calls"];
        self.choices().filter(|c| members.iter().any(|name| says(&c["delta"][name]))).count()
    }

    /// Returns the finish reasons in the order in which they were received.
    pub fn finish_reasons(&self) -> Vec<&str> {
        self.choices().filter_map(|choice| choice["finish_reason"].as_str()).collect()
    }

    /// Returns the usage, if it was reported.
    pub fn usage(&self) -> Option<&Value> {
        self.chunks.iter().map(|chunk| &chunk["usage"]).find(|usage| !usage.is_null())
    }

    /// Returns the cost reported in the usage.
    #[track_caller]
    pub fn cost(&self) -> NanoUsd {
        nanos(&self.usage().unwrap_or_else(|| panic!("no usage: {self:?}"))["cost"])
    }

    /// Returns the code of the final error; empty if there was none.
    pub fn error_code(&self) -> &str {
        self.error.as_ref().and_then(|error| error["code"].as_str()).unwrap_or_default()
    }

    /// Asserts that the stream ended with this error event, correctly terminated and without `[DONE]`.
    #[track_caller]
    pub fn assert_error(&self, status: u16, code: &str) {
        let error = self.error.as_ref().unwrap_or_else(|| panic!("no error: {self:?}"));
        super::clients::client::assert_error_object(error, status);
        assert_eq!(error["code"], code, "{self:?}");
        assert!(!self.done && self.broken.is_none() && self.usage().is_none(), "{self:?}");
    }

    /// Asserts that the stream ended without an error.
    #[track_caller]
    pub fn assert_done(&self) -> &Self {
        assert!(self.done && self.error.is_none() && self.broken.is_none(), "{self:?}");
        self
    }
}

/// Shows the end of the stream in failed tests rather than every chunk.
impl fmt::Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said: String = self.text().chars().take(200).collect();
        let last = self.chunks.last().map(ToString::to_string);
        f.debug_struct("Ended")
            .field("chunks", &self.chunks.len())
            .field("tokens", &self.tokens())
            .field("text", &said)
            .field("finish_reasons", &self.finish_reasons())
            .field("last", &last)
            .field("error", &self.error.as_ref().map(ToString::to_string))
            .field("done", &self.done)
            .field("comments", &self.comments)
            .field("broken", &self.broken)
            .finish()
    }
}
