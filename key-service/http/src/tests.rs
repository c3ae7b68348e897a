//! Tests of the management API as clients use it, over the store in memory.

use axum::body::Body;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use shared::{
    clock::random_bytes,
    generation::{Course, FinishReason, ModelApi, Origin},
    ids::{AccountId, GenerationId, KeyId, RequestId},
    money::NanoUsd,
    time::Timestamp,
    tokens::Usage,
    wire::{ALERTS, CREDITS, EVENTS, GENERATIONS, GROUPS, KEYS, OWN_KEY, USAGE, WEBHOOKS},
};
use shared_config::internal_token::InternalTokens;
use tokio::task::yield_now;
use tower::ServiceExt;

use super::*;
use domain::ledger::{Command, NewHold, Progress, histories::new_hold};
use key_service_management::testing::Office;
use key_service_store::store::Ledger as _;

mod access;
mod bounds;
mod change;
mod create;
mod credentials;
mod groups;
mod listing;
mod nouns;
mod operator;
mod raises;
mod reading;
mod refusals;
mod rotation;
mod standing;
mod webhooks;

/// The API, an account `acme`, and one of its management keys.
struct Desk {
    office: Office,
    app: Router,
    account: AccountId,
    credential: String,
}

/// A response with its whole body.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
    json: Value,
}

impl Desk {
    async fn open() -> Self {
        let office = Office::open();
        let app =
            router(office.management.clone(), office.clock.clone(), internal_token(), None, Router::new());
        let (account, credential) = office.account("acme").await;
        Self { office, app, account, credential }
    }

    /// Returns a second desk with the same API, account and management key.
    fn of(other: &Self) -> Self {
        let Office { clock, records, store, credentials, management } = &other.office;
        let office = Office {
            clock: clock.clone(),
            records: records.clone(),
            store: store.clone(),
            credentials: credentials.clone(),
            management: management.clone(),
        };
        Self { office, app: other.app.clone(), account: other.account, credential: other.credential.clone() }
    }

    /// Creates a group, and returns its path.
    async fn group(&self, body: &str) -> String {
        let answer = self.call(Method::POST, GROUPS, body.to_owned()).await;
        assert_eq!(answer.status, 201, "{body}: {}", answer.text);
        format!("{GROUPS}/{}", id_of(&answer.json))
    }

    /// Returns commands that hold this amount for a generation and bill it to the key. The request's id has the same
    /// digits as the generation's id.
    fn commands(id: &str, generation: GenerationId, nanos: i64) -> [Command; 2] {
        let (key, cost) = (id.parse::<KeyId>().unwrap(), NanoUsd::from_nanos(nanos));
        let origin = Some(Arc::new(Origin {
            api: ModelApi::Responses,
            stream: true,
            user: Some("u-1".into()),
            request: RequestId::from_slice(generation.as_bytes()),
        }));
        let new = new_hold(key, generation, cost);
        let hold = Command::Hold(NewHold { prompt_tokens: 12, origin, ..new });
        let course = Some(Arc::new(Course {
            upstream: Some("eu-2".into()),
            authorized_ms: Some(3),
            first_token_ms: Some(41),
            latency_ms: Some(950),
            finish_reason: Some(FinishReason::Length),
            least_cost_nanos: None,
        }));
        let total = Progress { usage: Usage::of(12, 0, 5), cost, upstream_cost: None, course };
        let capture = Command::Capture {
            key,
            generation,
            model: "Model Flash".into(),
            total,
            chargeable: None,
            estimated: false,
        };
        [hold, capture]
    }

    /// Bills this amount to the key, and returns the generation.
    async fn bill(&self, id: &str, nanos: i64) -> String {
        let now = self.office.clock.now();
        let generation = GenerationId::new(now, random_bytes(&*self.office.clock));
        let commands = Self::commands(id, generation, nanos).into();
        let outcomes = self.office.store.execute(self.account, commands, now).await.unwrap();
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        generation.to_string()
    }

    /// Begins a request with the credential and a JSON content type.
    fn request(&self, method: Method, path: &str) -> http::request::Builder {
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", "x")
            .header("authorization", format!("Bearer {}", self.credential))
            .header("content-type", "application/json")
    }

    async fn send(&self, mut request: Request<Body>) -> Answer {
        request.headers_mut().entry("host").or_insert(HeaderValue::from_static("x"));
        let response = self.app.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let id = head.headers["x-request-id"].to_str().unwrap();
        assert!(id.starts_with("req_") && id.len() == 36, "{id}");
        assert_eq!(head.headers["cache-control"], "no-store");
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        Answer { status: head.status, headers: head.headers, text, json }
    }

    async fn call(&self, method: Method, path: &str, body: impl Into<Body>) -> Answer {
        self.send(self.request(method, path).body(body.into()).unwrap()).await
    }

    /// Creates an object with an idempotency key.
    async fn once(&self, path: &str, idempotency_key: &str, body: &str) -> Answer {
        let request = self.request(Method::POST, path).header("idempotency-key", idempotency_key);
        self.send(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, "").await
    }

    async fn create(&self, body: &str) -> Answer {
        self.call(Method::POST, KEYS, body.to_owned()).await
    }

    async fn patch(&self, id: &str, body: &str) -> Answer {
        self.call(Method::PATCH, &format!("{KEYS}/{id}"), body.to_owned()).await
    }

    async fn delete(&self, id: &str) -> Answer {
        self.call(Method::DELETE, &format!("{KEYS}/{id}"), "").await
    }

    /// Creates a key, and returns it as the API shows it.
    async fn created(&self, body: &str) -> Value {
        let answer = self.create(body).await;
        assert_eq!(answer.status, 201, "{body}: {}", answer.text);
        answer.json
    }

    /// Creates a key, and returns its id.
    async fn created_id(&self, body: &str) -> String {
        id_of(&self.created(body).await)
    }

    /// Uses the management key, and waits until the use has been recorded, which happens in the background.
    async fn used(&self) -> Option<Timestamp> {
        self.get(CREDITS).await;
        for _ in 0..100 {
            yield_now().await;
        }
        self.office.management.management_keys(self.account).await.unwrap()[0].last_used_at
    }

    /// Returns the list of all keys, as a way to see whether a key has changed.
    async fn everything(&self) -> String {
        let answer = self.get(KEYS).await;
        assert_eq!(answer.status, 200);
        answer.text
    }
}

/// Returns the ids in a listing, and whether more follow.
fn ids_in(answer: &Answer) -> (Vec<String>, bool) {
    assert_eq!((answer.status.as_u16(), &answer.json["object"]), (200, &json!("list")), "{}", answer.text);
    let ids: Vec<String> = answer.json["data"].as_array().unwrap().iter().map(id_of).collect();
    assert_eq!(
        (&answer.json["first_id"], &answer.json["last_id"]),
        (&json!(ids.first()), &json!(ids.last()))
    );
    (ids, answer.json["has_more"].as_bool().unwrap())
}

fn id_of(key: &Value) -> String {
    key["id"].as_str().unwrap().to_owned()
}

impl Answer {
    /// Asserts a complete error: status, code, type and param.
    #[track_caller]
    fn is_error(&self, status: u16, code: &str, param: Option<&str>) {
        assert_eq!(
            (self.status.as_u16(), &self.json["error"]["code"]),
            (status, &json!(code)),
            "{}",
            self.text
        );
        assert_eq!(self.json["error"]["param"], json!(param), "{}", self.text);
        let kind = match status {
            401 => "authentication_error",
            403 => "permission_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        };
        assert_eq!(self.json["error"]["type"], kind);
        let message = self.json["error"]["message"].as_str().unwrap();
        assert!(message.ends_with('.') && message.len() > 10, "{message}");
        assert_eq!(self.headers["content-type"], "application/json");
        assert_eq!(self.json["error"].as_object().unwrap().len(), 4);
    }
}

/// Returns the token that gateways present.
fn internal_token() -> InternalToken {
    InternalToken::new(InternalTokens::new("token".into(), None).unwrap())
}
