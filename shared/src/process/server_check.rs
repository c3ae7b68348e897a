//! Asks the model servers of a catalogue what they serve.

use std::{env, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use tokio::{task::JoinSet, time::timeout};

use super::http_client::{ClientSettings, HttpClient, http_client};
use crate::catalog::{Catalog, Model, ServerDescription, Upstream, UpstreamKind};

/// Longest time to make a connection to a server.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// Longest time for a server's answer: one that loads its weights answers once it has.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// Largest answer that is read, in bytes: hosted providers list hundreds of models, with descriptions.
const MAX_ANSWER_BYTES: usize = 8 << 20;
/// Servers that are asked at a time, so that a long catalogue needs few sockets and little memory.
const SERVERS_AT_ONCE: usize = 8;

/// Something that an operator should know about an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFinding {
    /// Id of the model.
    pub model: String,
    /// The upstream's name for the model, and its address.
    pub upstream: String,
    /// What was found.
    pub kind: FindingKind,
}

/// Kind of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// The catalogue promises more than the server has.
    Promise(String),
    /// The server did not tell.
    NotTold(String),
}

/// What is asked, and with which credential.
#[derive(Clone, PartialEq, Eq)]
struct Question {
    uri: Uri,
    kind: UpstreamKind,
    api_key_env: Option<String>,
}

/// Asks each server of a catalogue once, and returns what the catalogue promises and the servers do not have, in the order of
/// the catalogue.
pub async fn check_servers(catalog: &Catalog) -> Vec<ServerFinding> {
    let mut questions: Vec<Question> = Vec::new();
    let upstreams =
        || catalog.models.iter().flat_map(|model| model.upstreams.iter().map(move |u| (model, u)));
    for question in upstreams().filter_map(|(_, upstream)| Question::of(upstream)) {
        if !questions.contains(&question) {
            questions.push(question);
        }
    }
    let answers = ask(&questions).await;
    let findings = upstreams().flat_map(|(model, upstream)| {
        let place = Question::of(upstream).and_then(|own| questions.iter().position(|q| *q == own));
        let answer = place.and_then(|place| answers.get(place)).and_then(Option::as_ref);
        answer.map_or_else(Vec::new, |answer| findings(model, upstream, answer))
    });
    findings.collect()
}

/// The answers to all questions, in their order.
async fn ask(questions: &[Question]) -> Vec<Option<Result<ServerDescription, String>>> {
    let client = http_client(ClientSettings {
        tls: None,
        connect_deadline: CONNECT_DEADLINE,
        idle: Duration::ZERO,
        idle_connections: 0,
    });
    let mut answers = vec![None; questions.len()];
    let mut asked = JoinSet::new();
    let mut waiting = questions.iter().cloned().enumerate();
    loop {
        while asked.len() < SERVERS_AT_ONCE
            && let Some((place, question)) = waiting.next()
        {
            let client = client.clone();
            asked.spawn(async move { (place, question.ask(&client).await) });
        }
        match asked.join_next().await {
            Some(Ok((place, answer))) => answers[place] = Some(answer),
            // A task that panicked has no answer.
            Some(Err(_)) => {}
            None => return answers,
        }
    }
}

fn findings(
    model: &Model,
    upstream: &Upstream,
    answer: &Result<ServerDescription, String>,
) -> Vec<ServerFinding> {
    let kinds = match answer {
        Ok(description) => {
            let broken = description.broken_promises(model, upstream);
            broken.into_iter().map(FindingKind::Promise).collect()
        }
        Err(reason) => vec![FindingKind::NotTold(reason.clone())],
    };
    let address = upstream.url.as_ref().and_then(Uri::authority).map_or("", |authority| authority.as_str());
    let name = format!("{} at {address}", upstream.model);
    let finding = |kind| ServerFinding { model: model.id.clone(), upstream: name.clone(), kind };
    kinds.into_iter().map(finding).collect()
}

impl Question {
    /// What an upstream is asked, unless it is the built-in model.
    fn of(upstream: &Upstream) -> Option<Self> {
        let base = upstream.url.as_ref()?.to_string();
        let (path, is_beside) = ServerDescription::path(upstream.kind)?;
        let base = base.trim_end_matches('/');
        let base = if is_beside { base.strip_suffix("/v1").unwrap_or(base) } else { base };
        let uri = format!("{base}{path}").parse().ok()?;
        Some(Self { uri, kind: upstream.kind, api_key_env: upstream.api_key_env.clone() })
    }

    async fn ask(&self, client: &HttpClient<Empty<Bytes>>) -> Result<ServerDescription, String> {
        match timeout(ANSWER_DEADLINE, self.answer(client)).await {
            Ok(answer) => answer,
            Err(_) => Err("the server does not answer in time".into()),
        }
    }

    async fn answer(&self, client: &HttpClient<Empty<Bytes>>) -> Result<ServerDescription, String> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = self.uri.clone();
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        if let Some(variable) = &self.api_key_env {
            let key = env::var(variable).map_err(|_| format!("{variable} is not set here"))?;
            let mut value = HeaderValue::try_from(format!("Bearer {key}"))
                .map_err(|_| format!("{variable} holds characters that a header cannot carry"))?;
            value.set_sensitive(true);
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        let answer = client.request(request).await;
        let answer = answer.map_err(|e| format!("the server cannot be reached: {}", chain(&e)))?;
        let path = self.uri.path();
        if answer.status() != StatusCode::OK {
            return Err(format!("the server answers {} at {path}", answer.status().as_u16()));
        }
        let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|_| format!("the server's answer at {path} breaks off, or is too large"))?;
        let description = ServerDescription::read(self.kind, &body.to_bytes());
        description.ok_or_else(|| format!("the server's answer at {path} describes no models"))
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        text = format!("{text}: {e}");
        cause = e.source();
    }
    text
}
