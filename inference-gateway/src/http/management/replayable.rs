//! A management request for a key-service. It has everything that is needed to send it again, and knows when that is
//! safe.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderName, Method, Request, Uri, Version, request::Parts, uri::PathAndQuery};
use shared::{error::ApiError, wire::MAX_BODY_BYTES};
use shared_door::http::read_body;

/// Header that makes creating a key safe to repeat.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A request that may be sent to several key-services.
pub(in super::super) struct ReplayableRequest {
    head: Parts,
    body: Bytes,
    /// When the request may be sent again.
    pub(super) repeat: RetrySafety,
}

/// When a request may be sent again. Each variant includes the variants before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RetrySafety {
    /// Only if it was not sent, since it would otherwise be carried out twice.
    Unsent,
    /// Once the key-service that has it can no longer execute it. The request sets something to a value, and if it were
    /// executed late, it would undo a newer change.
    OnceEnded,
    /// At any time, since repeating it has no further effect.
    Always,
}

impl ReplayableRequest {
    /// Reads the body first, so that a stalling client is not mistaken for a stalling key-service.
    pub(in super::super) async fn read(request: Request<Body>) -> Result<Self, ApiError> {
        let (head, body) = request.into_parts();
        let body = read_body(&head.headers, body, MAX_BODY_BYTES).await?;
        Ok(Self { repeat: repeat(&head), head, body })
    }

    /// Copies the request for this key-service.
    pub(super) fn copy(&self, base: &Uri) -> Option<Request<Body>> {
        let mut request = Request::new(Body::from(self.body.clone()));
        *request.method_mut() = self.head.method.clone();
        *request.uri_mut() = at(base, self.head.uri.path_and_query()?)?;
        *request.version_mut() = Version::HTTP_11;
        request.headers_mut().clone_from(&self.head.headers);
        Some(request)
    }
}

/// Returns the URL of this path and query at a key-service.
pub(super) fn at(base: &Uri, path: &PathAndQuery) -> Option<Uri> {
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(path.clone());
    Uri::from_parts(parts).ok()
}

fn repeat(head: &Parts) -> RetrySafety {
    match head.method {
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE => {
            RetrySafety::Always
        }
        // The key-service answers a repetition with the first result.
        Method::POST if head.headers.contains_key(IDEMPOTENCY_KEY) => RetrySafety::Always,
        Method::PATCH => RetrySafety::OnceEnded,
        _ => RetrySafety::Unsent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn request(method: Method, body: Body) -> ReplayableRequest {
        let request = Request::builder().method(method).uri("/v1/management/keys?limit=1");
        ReplayableRequest::read(request.body(body).unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn only_what_does_no_more_when_it_is_done_twice_is_sent_again() {
        for (method, expected) in [
            (Method::GET, RetrySafety::Always),
            (Method::DELETE, RetrySafety::Always),
            (Method::PATCH, RetrySafety::OnceEnded),
            (Method::POST, RetrySafety::Unsent),
        ] {
            assert_eq!(request(method.clone(), Body::empty()).await.repeat, expected, "{method}");
        }
        let keyed = Request::post("/").header(IDEMPOTENCY_KEY, "x").body(Body::empty()).unwrap();
        assert_eq!(ReplayableRequest::read(keyed).await.unwrap().repeat, RetrySafety::Always);
    }

    #[tokio::test]
    async fn every_copy_is_the_same_but_for_its_address() {
        let request = request(Method::POST, Body::from("{}")).await;
        for base in ["http://a:1", "http://b:2"] {
            let copy = request.copy(&base.parse().unwrap()).unwrap();
            assert_eq!(copy.uri().to_string(), format!("{base}/v1/management/keys?limit=1"));
            let (head, body) = copy.into_parts();
            assert_eq!(read_body(&head.headers, body, 9).await.unwrap(), "{}");
        }
    }
}
