//! The servers that run the models: choosing one, sending it a request, and understanding how it fails.

mod dialect;
mod failure;
mod pool;

use std::{env, fmt, time::Duration};

use bytes::{Buf, Bytes, buf::Chain};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use serde::Deserialize;
use shared::{
    catalog::{self, LimitParam},
    config::ConfigError,
};
use tokio::time::timeout;

use crate::domain::{
    affinity,
    chat::{Address, Progress},
};
use dialect::{Counter, Dialect};
pub use failure::{Failure, of_event};
pub use pool::{Pool, Running};

/// How long a connection may take to come about.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// How long an upstream may take to answer: for a whole answer, until it is generated. The SDKs' own default.
const HEADERS_DEADLINE: Duration = Duration::from_mins(10);
/// How long an exact count may take, which holds up a request that would else be refused.
const COUNT_DEADLINE: Duration = Duration::from_secs(10);
/// Idle connections per upstream; the system's default of 90 s ends them.
const IDLE_CONNECTIONS: usize = 1024;
/// The largest whole answer that is read.
pub const MAX_ANSWER_BYTES: usize = 64 << 20;

/// A client for upstreams, http and https. Cheap to clone.
pub type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Chain<Bytes, Bytes>>>;

/// A client that connects within a bound and never waits to fill packets.
pub fn http_client() -> HttpClient {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_DEADLINE));
    tcp.enforce_http(false);
    let connector =
        HttpsConnectorBuilder::new().with_webpki_roots().https_or_http().enable_http1().wrap_connector(tcp);
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .build(connector)
}

/// One server of a model.
pub struct Upstream {
    /// The name it knows the model by.
    pub model: String,
    /// What it is known by in every gateway.
    identity: u64,
    dialect: Dialect,
    limit_param: LimitParam,
    chat: Uri,
    /// Where it counts a prompt's tokens, if it does.
    counter: Option<Uri>,
    authorization: Option<HeaderValue>,
    client: HttpClient,
}

/// The exact tokens of a prompt, as far as they can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Tokens of the prompt.
    pub tokens: u64,
    /// Whether what images become is among them.
    pub with_images: bool,
}

impl Upstream {
    fn new(
        upstream: &catalog::Upstream,
        client: &HttpClient,
        builtin: Option<&Uri>,
    ) -> Result<Self, ConfigError> {
        let Some(base) = upstream.url.as_ref().or(builtin) else {
            let reason = "kind \"builtin\" needs FAREGATE_BUILTIN_URL outside `faregate`; or give the model an upstream with a url";
            return Err(ConfigError::new("FAREGATE_MODELS", reason));
        };
        let at = |path: &str| -> Result<Uri, ConfigError> {
            format!("{base}{path}")
                .parse()
                .map_err(|e| ConfigError::new("FAREGATE_MODELS", format!("{base}: {e}")))
        };
        let dialect = Dialect::of(upstream.kind);
        Ok(Self {
            model: upstream.model.clone(),
            identity: affinity::identity(&base.to_string(), &upstream.model),
            dialect,
            limit_param: upstream.limit_param,
            chat: at("/chat/completions")?,
            counter: match dialect.counter {
                Counter::None => None,
                Counter::BesideV1 => Some(at_root(base).map_or_else(|| at("/tokenize"), Ok)?),
                Counter::UnderV1 => Some(at("/tokenize")?),
                Counter::InputTokens => Some(at("/chat/completions/input_tokens")?),
            },
            authorization: upstream.api_key_env.as_deref().map(credential).transpose()?,
            client: client.clone(),
        })
    }

    /// What it is told beyond what the client asked for.
    pub fn address<'a>(&'a self, max_tokens: Option<u64>, cache_salt: Option<&'a str>) -> Address<'a> {
        let cache_salt = cache_salt.filter(|_| self.dialect.salted);
        let (limit_param, progress) = (self.limit_param, self.dialect.progress);
        Address { model: &self.model, limit_param, max_tokens, progress, cache_salt }
    }

    /// What it is told to count a prompt.
    pub fn counting(&self) -> Address<'_> {
        Address { progress: Progress::None, ..self.address(Some(1), None) }
    }

    /// Whether it may be able to count a prompt's tokens.
    pub const fn counts(&self) -> bool {
        self.counter.is_some()
    }

    /// Whether the usage of a whole answer with several choices counts the first of them alone.
    pub const fn tells_usage_of_first_choice(&self) -> bool {
        self.dialect.usage_of_first_choice
    }

    /// Sends a chat request; answers once the upstream has said 200.
    pub async fn send(&self, head: Bytes, rest: Bytes) -> Result<Response<Incoming>, Failure> {
        let response = self.post(&self.chat, head, rest, HEADERS_DEADLINE).await?;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        Err(failure::of_response(response, &self.model).await)
    }

    /// The exact tokens of the request's prompt, where this upstream can count them.
    pub async fn count(&self, head: Bytes, rest: Bytes) -> Option<Counted> {
        #[derive(Deserialize)]
        struct Answer {
            #[serde(alias = "input_tokens")]
            count: u64,
        }
        let counter = self.counter.as_ref()?;
        let counting = async {
            let response = self.post(counter, head, rest, COUNT_DEADLINE).await.ok()?;
            if response.status() != StatusCode::OK {
                return None;
            }
            let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await.ok()?.to_bytes();
            serde_json::from_slice::<Answer>(&body).ok()
        };
        let tokens = timeout(COUNT_DEADLINE, counting).await.ok()??.count;
        Some(Counted { tokens, with_images: self.dialect.counter.counts_images() })
    }

    async fn post(
        &self,
        uri: &Uri,
        head: Bytes,
        rest: Bytes,
        deadline: Duration,
    ) -> Result<Response<Incoming>, Failure> {
        let mut request = Request::new(Full::new(head.chain(rest)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri.clone();
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(authorization) = &self.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        match timeout(deadline, self.client.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(e)) => Err(failure::of_connection(&e)),
            Err(_) => Err(Failure::Timeout),
        }
    }
}

/// How logs name it; never told to clients.
impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.model, self.chat.authority().map_or("", |authority| authority.as_str()))
    }
}

/// `/tokenize` stands beside `/v1`, not below it.
fn at_root(base: &Uri) -> Option<Uri> {
    let mut parts = base.clone().into_parts();
    let path = base.path().strip_suffix("/v1")?;
    parts.path_and_query = Some(format!("{path}/tokenize").parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// The `Authorization` that an upstream wants, from the environment variable that the catalogue names.
fn credential(variable: &str) -> Result<HeaderValue, ConfigError> {
    let error =
        |reason: &str| ConfigError::new("FAREGATE_MODELS", format!("api_key_env \"{variable}\" {reason}"));
    let key = env::var(variable).map_err(|_| error("names an environment variable that is not set"))?;
    let mut value = HeaderValue::try_from(format!("Bearer {key}"))
        .map_err(|_| error("holds characters that a header cannot carry"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The next bytes of a streamed answer; `None` at its end.
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
