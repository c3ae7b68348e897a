//! The scripted upstream speaks Responses and Messages as their vendors do, over plain HTTP.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::{
    harness::{Answer, Event, Events, Http},
    upstream::{Api, Script, Upstream},
};

mod caches;
mod faults;
mod messages;
mod responses;
mod strict_messages;
mod strict_responses;

/// A client of an upstream in one of the two APIs.
struct Client {
    upstream: Upstream,
    api: Api,
    http: Http,
}

impl Client {
    fn of(api: Api) -> Self {
        Self { upstream: Upstream::start(), api, http: Http::new() }
    }

    /// Returns a request body with one user message that contains this script, and with these additional members.
    fn body(&self, script: &Script, more: Value) -> Value {
        let mut body = match self.api {
            Api::Messages => json!({"model": "m", "max_tokens": 1000, "messages": [user(&script.message())]}),
            Api::Responses | Api::Chat => json!({"model": "m", "input": [user(&script.message())]}),
        };
        let Value::Object(more) = more else { panic!("members stand in an object: {more}") };
        body.as_object_mut().unwrap().extend(more);
        body
    }

    fn request(&self, route: &str, body: &Value) -> Request<Full<Bytes>> {
        let url = format!("{}/{route}", self.upstream.url());
        let request = Request::post(url).header("x-api-key", "sk-scripted-upstream");
        let request = request.header("anthropic-version", "2023-06-01");
        request.body(Full::new(Bytes::from(body.to_string()))).unwrap()
    }

    async fn send(&self, body: &Value) -> Answer {
        self.http.send(self.request(self.route(), body)).await
    }

    async fn whole(&self, script: &Script, more: Value) -> Value {
        self.send(&self.body(script, more)).await.json()
    }

    /// Returns the events of a stream, and how the stream broke, if it did.
    async fn stream(&self, script: &Script, more: Value) -> (Vec<Value>, Option<String>) {
        let mut body = self.body(script, more);
        body["stream"] = true.into();
        let response = self.http.open(self.request(self.route(), &body)).await.unwrap();
        assert_eq!(response.status(), 200);
        let (mut events, mut all) = (Events::new(response.into_body()), Vec::new());
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Data(data)) => all.push(data),
                Ok(Event::Comment(_)) => {}
                Ok(Event::Done) => panic!("neither API says [DONE]"),
                Err(broken) => return (all, Some(broken)),
            }
        }
        (all, None)
    }

    /// Returns the answer of the endpoint that counts tokens. The endpoint accepts only these members.
    async fn count(&self, body: &Value, members: &[&str]) -> Value {
        let mut asked = body.clone();
        asked.as_object_mut().unwrap().retain(|name, _| members.contains(&name.as_str()));
        let route =
            if self.api == Api::Messages { "messages/count_tokens" } else { "responses/input_tokens" };
        self.http.send(self.request(route, &asked)).await.json()
    }

    const fn route(&self) -> &'static str {
        match self.api {
            Api::Messages => "messages",
            Api::Responses | Api::Chat => "responses",
        }
    }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// Returns the types of these events, without consecutive repetitions.
fn types(events: &[Value]) -> Vec<&str> {
    let mut types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    types.dedup();
    types
}

/// Joins a member of these events' deltas.
fn joined(events: &[Value], kind: &str, pointer: &str) -> String {
    let of_kind = events.iter().filter(|event| event["type"] == kind);
    of_kind.filter_map(|event| event.pointer(pointer)?.as_str()).collect()
}
