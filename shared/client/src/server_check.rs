//! Asks the model servers of a catalogue which models they serve.

use std::time::Duration;

use http::{StatusCode, Uri};
use shared_catalog::{Access, Catalog, Model, ServerDescription, Upstream, UpstreamKind};
use tokio::task::JoinSet;

use crate::upstream_call::UpstreamCall;

/// How long a server may take to answer. A server that is still loading the model's weights does not answer in time.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// Maximum number of servers that are asked at once. It limits the sockets and the memory that a long catalogue needs.
const SERVERS_AT_ONCE: usize = 8;

/// What the check found out about an upstream, for its operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFinding {
    pub model: String,
    /// The upstream's own name for the model, and its address.
    pub upstream: String,
    pub kind: FindingKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindingKind {
    Promise(String),
    /// The server did not answer, or its answer does not describe it.
    NotTold(String),
}

/// A question to a server, and how to reach that server.
#[derive(Clone)]
struct ServerQuestion {
    uri: Uri,
    kind: UpstreamKind,
    access: Access,
}

/// Asks each server of a catalogue once. Returns what the catalogue promises but its servers do not offer, and which
/// servers gave no answer, in the order of the catalogue.
pub async fn check_servers(catalog: &Catalog) -> Vec<ServerFinding> {
    let mut questions: Vec<ServerQuestion> = Vec::new();
    let upstreams =
        || catalog.models.iter().flat_map(|model| model.upstreams.iter().map(move |u| (model, u)));
    for question in upstreams().filter_map(|(_, upstream)| ServerQuestion::of(upstream)) {
        if !questions.iter().any(|other| other.is(&question)) {
            questions.push(question);
        }
    }
    let answers = ask(&questions).await;
    let findings = upstreams().flat_map(|(model, upstream)| {
        let place = ServerQuestion::of(upstream).and_then(|own| questions.iter().position(|q| q.is(&own)));
        let answer = place.and_then(|place| answers.get(place)).and_then(Option::as_ref);
        answer.map_or_else(Vec::new, |answer| findings(model, upstream, answer))
    });
    findings.collect()
}

/// Asks all questions. Returns the answers in the same order.
async fn ask(questions: &[ServerQuestion]) -> Vec<Option<Result<ServerDescription, String>>> {
    let mut answers = vec![None; questions.len()];
    let mut asked = JoinSet::new();
    let mut waiting = questions.iter().cloned().enumerate();
    loop {
        while asked.len() < SERVERS_AT_ONCE
            && let Some((place, question)) = waiting.next()
        {
            asked.spawn(async move { (place, question.ask().await) });
        }
        match asked.join_next().await {
            Some(Ok((place, answer))) => answers[place] = Some(answer),
            // The task panicked, so its question has no answer.
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

impl ServerQuestion {
    /// Returns the question to ask the server of an upstream; `None` for the built-in model.
    fn of(upstream: &Upstream) -> Option<Self> {
        let base = upstream.url.as_ref()?;
        let uri = ServerDescription::address(upstream.kind, base)?;
        Some(Self { uri, kind: upstream.kind, access: upstream.access.clone() })
    }

    /// Returns whether one answer serves for both questions: they go to the same server, with credentials from the same
    /// sources.
    fn is(&self, other: &Self) -> bool {
        let way = |question: &Self| {
            let sources =
                question.access.headers.iter().map(|header| (header.name.clone(), header.source.to_string()));
            (sources.collect::<Vec<_>>(), question.access.ca_file.clone())
        };
        self.uri == other.uri && self.kind == other.kind && way(self) == way(other)
    }

    async fn ask(&self) -> Result<ServerDescription, String> {
        let Self { uri, kind, access } = self;
        let call = UpstreamCall { uri, access, body: None, deadline: ANSWER_DEADLINE };
        let answer = call.send().await.map_err(|e| e.to_string())?;
        let path = uri.path();
        if answer.status != StatusCode::OK {
            return Err(format!("the server answers {} at {path}", answer.status.as_u16()));
        }
        let description = ServerDescription::read(*kind, &answer.body);
        description.ok_or_else(|| format!("the server's answer at {path} describes no models"))
    }
}
