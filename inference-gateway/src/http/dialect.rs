//! Public dialects of model calls: their routes, parsers, and forms of errors.

use answer::message_error;
use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use bytes::Bytes;
use request::{Request as ModelRequest, chat, embeddings, messages, responses};
use shared::{error::ApiError, ids::RequestId};
use shared_catalog::{ANTHROPIC_VERSION, Catalog, UpstreamApi};

/// Header with the request's id, as the Messages API names it.
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// Longest `Retry-After` in the Messages API, in seconds. The API's SDKs ignore longer times.
const MAX_RETRY_AFTER: u32 = 59;
/// The Messages API's status for a service that is overloaded or briefly unavailable.
const OVERLOADED: u16 = 529;

/// A public dialect of model calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Chat,
    Responses,
    Messages,
    Embeddings,
}

impl Dialect {
    pub(super) const EMBEDDINGS: &str = "/v1/embeddings";
    pub(super) const CHAT: &str = "/v1/chat/completions";
    pub(super) const RESPONSES: &str = "/v1/responses";
    pub(super) const MESSAGES: &str = "/v1/messages";

    pub(super) const ALL: [Self; 4] = [Self::Chat, Self::Responses, Self::Messages, Self::Embeddings];

    pub(super) const fn route(self) -> &'static str {
        match self {
            Self::Chat => Self::CHAT,
            Self::Responses => Self::RESPONSES,
            Self::Messages => Self::MESSAGES,
            Self::Embeddings => Self::EMBEDDINGS,
        }
    }

    /// Finds the dialect whose route is this path.
    pub(super) fn of_route(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dialect| dialect.route() == path)
    }

    /// Parses the body of a model call, for the models of this catalogue.
    pub(super) fn parse(self, body: &Bytes, catalog: &Catalog) -> Result<ModelRequest, ApiError> {
        match self {
            Self::Chat => chat::parse(body),
            Self::Responses => {
                let passes = |model: &str| {
                    catalog.model(model).is_some_and(|model| model.passes(UpstreamApi::Responses))
                };
                responses::parse(body, passes)
            }
            Self::Messages => messages::parse(body),
            Self::Embeddings => embeddings::parse(body),
        }
    }
}

/// The form in which errors are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorForm {
    /// Errors have the form of the OpenAI API.
    OpenAi,
    /// Errors have the form of the Messages API.
    Messages,
}

impl ErrorForm {
    /// Returns the form of errors that the sender of a request expects.
    pub(super) fn of(request: &Request) -> Self {
        let path = request.uri().path();
        let is_below = |route: &str| {
            path.strip_prefix(route).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if is_below(Dialect::MESSAGES) || (is_below("/v1/models") && speaks_messages(request.headers())) {
            Self::Messages
        } else {
            Self::OpenAi
        }
    }

    /// Writes a response in this form.
    pub(super) fn apply(self, mut response: Response, id: RequestId) -> Response {
        if self == Self::OpenAi {
            return response;
        }
        let request_id = id.to_string();
        if let Some(error) = response.extensions_mut().remove::<ApiError>() {
            *response.body_mut() = Body::from(message_error(&error, Some(&request_id)));
            if error.code.status() == StatusCode::SERVICE_UNAVAILABLE
                && let Ok(overloaded) = StatusCode::from_u16(OVERLOADED)
            {
                *response.status_mut() = overloaded;
            }
            response.headers_mut().remove(header::CONTENT_LENGTH);
            shorten_retry_after(response.headers_mut());
        }
        if let Ok(value) = HeaderValue::try_from(request_id) {
            response.headers_mut().insert(REQUEST_ID, value);
        }
        response
    }
}

/// Returns whether a request comes from a client of the Messages API.
pub(super) fn speaks_messages(headers: &HeaderMap) -> bool {
    headers.contains_key(ANTHROPIC_VERSION)
}

fn shorten_retry_after(headers: &mut HeaderMap) {
    let seconds = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
    if seconds.is_some_and(|seconds| seconds > MAX_RETRY_AFTER) {
        headers.insert(header::RETRY_AFTER, MAX_RETRY_AFTER.into());
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use http_body_util::BodyExt;
    use shared::{clock::System, error::Code};

    use super::*;

    fn form(path: &str, version: bool) -> ErrorForm {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = path.parse().unwrap();
        if version {
            request.headers_mut().insert(ANTHROPIC_VERSION, HeaderValue::from_static("2023-06-01"));
        }
        ErrorForm::of(&request)
    }

    #[test]
    fn errors_have_the_form_of_the_route_and_of_its_clients() {
        for path in
            ["/v1/messages", "/v1/messages/count_tokens", "/v1/messages/other", "/v1/messages?beta=true"]
        {
            assert_eq!(form(path, false), ErrorForm::Messages, "{path}");
        }
        for path in ["/v1/chat/completions", "/v1/responses", "/v1/messagesx", "/v1/models"] {
            assert_eq!(form(path, false), ErrorForm::OpenAi, "{path}");
        }
        assert_eq!(
            (form("/v1/models/x", true), form("/v1/responses", true)),
            (ErrorForm::Messages, ErrorForm::OpenAi)
        );
    }

    #[tokio::test]
    async fn every_error_has_one_form_or_the_other() {
        let id = RequestId::generate(&System);
        for code in Code::ALL {
            let error = || ApiError::new(*code, "m").into_response();
            let plain = ErrorForm::OpenAi.apply(error(), id);
            assert_eq!((plain.status(), plain.headers().get(REQUEST_ID)), (code.status(), None));
            let shaped = ErrorForm::Messages.apply(error(), id);
            let status = shaped.status().as_u16();
            assert_eq!(
                status,
                if code.status() == StatusCode::SERVICE_UNAVAILABLE {
                    OVERLOADED
                } else {
                    code.status().as_u16()
                }
            );
            assert_eq!(shaped.headers()[REQUEST_ID], *id.to_string());
            let body = shaped.into_body().collect().await.unwrap().to_bytes();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!((&body["type"], &body["request_id"]), (&"error".into(), &id.to_string().into()));
        }
    }
}
