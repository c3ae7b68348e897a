//! A model's server: how requests are sent to it, and what it supports.

use std::{fmt, time::Duration};

use bytes::{Buf, Bytes};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header, uri::PathAndQuery};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use metering::UsageScope;
use parking_lot::Mutex;
use reply::carried::ServerId;
use request::{BodyForm, BodyPieces, Forward, ProgressReports, UpstreamParams};
use routing::cache_salt;
use shared::ids::AccountId;
use shared_catalog::UpstreamApi;
use shared_config::ConfigError;
use shared_door::admission::Quota;
use shared_observe::traces::{Span, TRACEPARENT};
use tokio::time::{Instant, timeout_at};
use upstream_error::{RefusedMember, RefusedMembers};

use crate::{
    client::{Server, UpstreamClient},
    dialect::{Dialect, TokenCounter},
    failure::{self, NotAnswered, UpstreamFailure},
    headers::{HeaderValues, UpstreamHeaders},
    learned::Learned,
    passed_head::PassedHead,
};

/// Maximum number of prompts that an upstream counts at once. Such a limit is needed, because counting is free of
/// charge and a prompt may have 64 MiB.
const MAX_COUNTS_AT_ONCE: usize = 4;
/// Maximum number of one account's prompts that an upstream counts at once. It is half of all, so that other accounts
/// get permits even if this account's counts are slow.
const MAX_COUNTS_OF_AN_ACCOUNT: usize = MAX_COUNTS_AT_ONCE / 2;

/// A server that serves a model.
pub struct Upstream {
    /// The server's entry in the catalogue.
    pub entry: shared_catalog::Upstream,
    /// Identity for routing, the same in every gateway.
    pub(crate) identity: u64,
    dialect: Dialect,
    server: Server,
    /// Paths of the server's API.
    chat: PathAndQuery,
    responses: PathAndQuery,
    messages: PathAndQuery,
    embeddings: PathAndQuery,
    /// Path for counting the tokens of a chat, if the server has such a path.
    counter: Option<PathAndQuery>,
    /// Paths for counting the tokens of requests in the other APIs.
    responses_counter: PathAndQuery,
    messages_counter: PathAndQuery,
    /// Headers of every request, including the credential.
    headers: UpstreamHeaders,
    /// Permits for counting prompts, shared between accounts.
    pub(crate) counting: Quota,
    /// Name of the last unexpected model that answered.
    other_model: Mutex<String>,
    /// Identifies the server as the one that made a signed part, since only this server gets the part back.
    pub signs_as: ServerId,
    learned: Learned,
}

pub struct Terms<'t> {
    pub account: AccountId,
    /// Query and headers for a body that is passed on.
    pub passed: &'t PassedHead,
    /// Maximum time until the answer begins.
    pub deadline: Duration,
    /// Header with the request's span, if spans are exported.
    pub traceparent: Option<HeaderValue>,
    /// Output limit of each choice.
    pub max_tokens: Option<u64>,
    pub refused: RefusedMembers,
}

pub struct BegunAnswer {
    pub body: Incoming,
    /// Whether a whole answer arrives as a stream.
    pub folded: bool,
}

/// A request to an upstream, except its body.
pub(crate) struct UpstreamRequest<'q> {
    pub(crate) path: &'q PathAndQuery,
    /// The client's query and headers, if its own body is passed on.
    pub(crate) passed: Option<&'q PassedHead>,
    pub(crate) deadline: Duration,
    pub(crate) traceparent: Option<HeaderValue>,
}

impl Upstream {
    pub(crate) fn new(entry: &shared_catalog::Upstream, builtin: Option<&Uri>) -> Result<Self, ConfigError> {
        let Some(base) = entry.url.as_ref().or(builtin) else {
            let reason = "kind \"builtin\" needs FAREGATE_BUILTIN_URL outside `faregate`; or give the model an upstream with a url";
            return Err(ConfigError::new("FAREGATE_MODELS", reason));
        };
        let prefix = base.path().trim_end_matches('/');
        let query = base.query().map(|query| format!("?{query}")).unwrap_or_default();
        let path = |prefix: &str, path: &str| -> Result<PathAndQuery, ConfigError> {
            format!("{prefix}{path}{query}")
                .parse()
                .map_err(|e| ConfigError::new("FAREGATE_MODELS", format!("{base}: {e}")))
        };
        let at = |name: &str| path(prefix, name);
        let dialect = Dialect::of(entry.kind);
        Ok(Self {
            entry: entry.clone(),
            identity: routing::identity(&base.to_string(), &entry.model),
            server: Server::of(base, &entry.access)?,
            dialect,
            chat: at("/chat/completions")?,
            responses: at("/responses")?,
            messages: at("/messages")?,
            responses_counter: at("/responses/input_tokens")?,
            messages_counter: at("/messages/count_tokens")?,
            embeddings: at("/embeddings")?,
            counter: match dialect.counter {
                TokenCounter::None => None,
                TokenCounter::BesideV1 => {
                    Some(path(prefix.strip_suffix("/v1").unwrap_or(prefix), "/tokenize")?)
                }
                TokenCounter::UnderV1 => Some(at("/tokenize")?),
                TokenCounter::InputTokens => Some(at("/chat/completions/input_tokens")?),
            },
            headers: UpstreamHeaders::read(&entry.access)?,
            counting: Quota::new(MAX_COUNTS_AT_ONCE, MAX_COUNTS_OF_AN_ACCOUNT),
            other_model: Mutex::default(),
            signs_as: ServerId::of(entry),
            learned: Learned::default(),
        })
    }

    /// Returns host and port, without a credential in the URL.
    pub fn address(&self) -> String {
        let (host, port) = self.server.address();
        format!("{host}:{port}")
    }

    /// Returns the form of the body that this server gets.
    pub fn form(&self, forward: &Forward) -> BodyForm {
        forward.form(&self.entry)
    }

    /// Notes that a model other than the requested model answered. Returns whether that is new.
    pub fn answers_as(&self, model: &str) -> bool {
        let mut last = self.other_model.lock();
        let is_new = *last != model;
        if is_new {
            model.clone_into(&mut last);
        }
        is_new
    }

    /// Returns the features of the server in the API in which this request is sent to it.
    pub(crate) fn dialect(&self, forward: &Forward) -> Dialect {
        match self.form(forward).api() {
            UpstreamApi::Chat => self.dialect,
            UpstreamApi::Responses | UpstreamApi::Messages => Dialect::HOSTED,
        }
    }

    /// Returns the path for counting the tokens of this request.
    pub(crate) fn counter(&self, forward: &Forward) -> Option<&PathAndQuery> {
        match self.form(forward).api() {
            UpstreamApi::Chat => {
                let is_counted = self.dialect.counter.counts_tools() || !forward.has_tools;
                self.counter.as_ref().filter(|_| is_counted && forward.reply.is_of_chat())
            }
            UpstreamApi::Responses => Some(&self.responses_counter),
            UpstreamApi::Messages => Some(&self.messages_counter),
        }
    }

    /// Returns whether the server can count the exact tokens of this prompt.
    pub fn counts(&self, forward: &Forward) -> bool {
        self.counter(forward).is_some()
    }

    /// Returns whether a stream from this server may end without a report of the prompt's tokens, so that these have to
    /// be counted. Servers of other APIs than chat report them in the first event, or are read to the end if the client
    /// leaves.
    pub fn counts_late(&self, forward: &Forward) -> bool {
        self.form(forward).api() == UpstreamApi::Chat && self.counts(forward)
    }

    /// Returns whether this server's streams show the tokens generated so far, in reports or token by token, so that a
    /// stream needs to hold only one grant at a time.
    pub fn shows_progress(&self, forward: &Forward) -> bool {
        let is_of_chat = self.form(forward).api() == UpstreamApi::Chat;
        // Progress is requested together with `stream_options`.
        let is_reported = self.dialect.progress != ProgressReports::None
            && !self.refused().contains(RefusedMember::StreamOptions);
        is_of_chat && (is_reported || self.entry.streams_every_token)
    }

    /// Returns whether this whole answer is requested as a stream and folded: either the server would report usage only
    /// of the first choice, or it refuses whole answers.
    fn folds(&self, forward: &Forward, refused: RefusedMembers) -> bool {
        let of_one = self.usage_scope(forward) == UsageScope::Choice && forward.n > 1;
        let streams_alone = refused.contains(RefusedMember::WholeAnswer) && !self.form(forward).is_passed();
        (of_one || streams_alone) && !forward.stream && forward.reply.is_of_chat()
    }

    /// Returns whether this request includes a member that it can do without.
    pub fn sends(&self, forward: &Forward, member: RefusedMember) -> bool {
        let form = self.form(forward);
        let is_of_responses = form.api() == UpstreamApi::Responses;
        let is_chat = form.api() == UpstreamApi::Chat && forward.reply.is_of_chat();
        match member {
            RefusedMember::WholeAnswer => !forward.stream && !form.is_passed() && forward.reply.is_of_chat(),
            RefusedMember::StreamOptions | RefusedMember::CallIds | RefusedMember::LimitName => is_chat,
            RefusedMember::CacheSalt => is_chat && self.dialect.salted,
            RefusedMember::ParallelToolCalls => !form.is_passed() && forward.has_tools,
            RefusedMember::Include => is_of_responses && !form.is_passed(),
            RefusedMember::Store | RefusedMember::CacheKey => is_of_responses,
        }
    }

    /// Returns the members that the server has refused.
    pub fn refused(&self) -> RefusedMembers {
        self.learned.refused()
    }

    /// Returns the highest output limit that the server accepts, if it has reported one.
    pub fn most_output(&self) -> u64 {
        self.learned.most_output()
    }

    /// Learns which members the server refuses and which limit it accepts. All requests take this into account until
    /// the catalogue is reloaded.
    pub fn learn(&self, refused: RefusedMembers, most_output: Option<u64>) {
        if self.learned.learn(refused, most_output) {
            tracing::warn!(
                upstream = %self,
                ?refused,
                most_output,
                "an upstream refuses some members of requests, or a high output limit; later requests are sent without \
                 these until the catalogue is reloaded"
            );
        }
    }

    /// Returns which output this server's usage reports cover in an answer with several choices.
    pub fn usage_scope(&self, forward: &Forward) -> UsageScope {
        self.dialect(forward).usage
    }

    /// Records the upstream in a request's span.
    pub fn name_in(&self, span: &Span) {
        if !span.is_sampled() {
            return;
        }
        span.set("gen_ai.provider.name", self.entry.kind.provider());
        let (host, port) = self.server.address();
        span.set("server.address", host.to_owned());
        span.set("server.port", i64::from(port));
    }

    /// Sends a request, and returns once the upstream has answered 200 within the deadline.
    pub async fn send(
        &self,
        client: &UpstreamClient,
        forward: &Forward,
        terms: Terms<'_>,
    ) -> Result<BegunAnswer, NotAnswered> {
        let (dialect, form) = (self.dialect(forward), self.form(forward));
        let salt = dialect.salted.then(|| cache_salt(terms.account));
        let folded = self.folds(forward, terms.refused);
        // For an answer that is read to its end, usage at the end of each choice is enough.
        let progress = if folded { ProgressReports::None } else { dialect.progress };
        let params = UpstreamParams {
            form,
            account: Some(terms.account),
            model: &self.entry.model,
            limit_param: self.entry.limit_param,
            max_tokens: terms.max_tokens,
            progress,
            cache_salt: salt.as_deref(),
            folded,
            refused: terms.refused,
        };
        let path = match form.api() {
            UpstreamApi::Chat if !forward.reply.is_of_chat() => &self.embeddings,
            UpstreamApi::Chat => &self.chat,
            UpstreamApi::Responses => &self.responses,
            UpstreamApi::Messages => &self.messages,
        };
        let passed = form.is_passed().then_some(terms.passed);
        let question =
            UpstreamRequest { path, passed, deadline: terms.deadline, traceparent: terms.traceparent };
        let response = self.ask(client, question, || forward.body(params)).await?;
        if response.status() == StatusCode::OK {
            return Ok(BegunAnswer { body: response.into_body(), folded });
        }
        let (status, retry_after) = (response.status(), failure::retry_after(response.headers()));
        let (error, member) = failure::read_error(response).await;
        let model = &self.entry.model;
        let mut failure = failure::of_error(&error, status.as_u16(), &self.entry, forward);
        if form.is_passed() {
            failure = failure::of_passed(failure, &error, status, model, retry_after);
        }
        Err(NotAnswered { failure, limit: error.refused_limit(status.as_u16()), member })
    }

    /// Sends a request. Repeats it once if the upstream refuses the credential and the credential's file now contains a
    /// different credential.
    pub(crate) async fn ask(
        &self,
        client: &UpstreamClient,
        question: UpstreamRequest<'_>,
        body: impl Fn() -> BodyPieces,
    ) -> Result<Response<Incoming>, UpstreamFailure> {
        let until = Instant::now() + question.deadline;
        let headers = self.headers.get();
        let mut response = self.post(client, &question, body(), &headers, until).await?;
        if refuses_credential(response.status())
            && let Some(replaced) = self.headers.replacing(&headers).await
        {
            response = self.post(client, &question, body(), &replaced, until).await?;
        }
        let status = response.status();
        if !refuses_credential(status) {
            return Ok(response);
        }
        if let Some(sources) = self.headers.sources_to_tell() {
            tracing::error!(upstream = %self, status = status.as_u16(), sources, "an upstream refuses its credential");
        }
        Err(UpstreamFailure::CredentialRefused(status.as_u16()))
    }

    async fn post(
        &self,
        client: &UpstreamClient,
        question: &UpstreamRequest<'_>,
        BodyPieces { head, rest }: BodyPieces,
        values: &HeaderValues,
        until: Instant,
    ) -> Result<Response<Incoming>, UpstreamFailure> {
        let mut request = Request::new(Full::new(head.chain(rest)));
        *request.method_mut() = Method::POST;
        let path = question.passed.and_then(|passed| passed.path(question.path, &self.entry));
        *request.uri_mut() = path.unwrap_or_else(|| question.path.clone()).into();
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        for (name, value) in values {
            headers.insert(name.clone(), value.clone());
        }
        if let Some(passed) = question.passed {
            passed.insert_into(headers);
        }
        if let Some(traceparent) = &question.traceparent {
            headers.insert(TRACEPARENT, traceparent.clone());
        }
        match timeout_at(until, client.request(&self.server, request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(e)) => Err(failure::of_connection(&e)),
            Err(_) => Err(UpstreamFailure::Timeout),
        }
    }
}

/// The name for logs. Clients never see it.
impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.entry.model, self.server.authority())
    }
}

/// Returns whether the upstream refuses the gateway, not the request.
fn refuses_credential(status: StatusCode) -> bool {
    status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN
}

/// Reads the next bytes of a streamed answer; `None` at the end.
pub async fn next_bytes(body: &mut Incoming) -> Option<Result<Bytes, hyper::Error>> {
    loop {
        match body.frame().await? {
            Ok(frame) => {
                if let Ok(data) = frame.into_data() {
                    return Some(Ok(data));
                }
            }
            Err(e) => return Some(Err(e)),
        }
    }
}
