//! CORS on the public routes: any origin, no credentials.

use axum::{
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};

/// Request headers on which the answer may depend.
const VARY: &str = "access-control-request-method, access-control-request-headers";
/// Response headers that scripts may read.
const EXPOSED: &str = "x-request-id,retry-after,x-should-retry,x-generation-id,x-max-tokens,x-dropped-tools,x-dropped-members,\
    x-ratelimit-limit-requests,x-ratelimit-remaining-requests,x-ratelimit-reset-requests,\
    x-ratelimit-limit-tokens,x-ratelimit-remaining-tokens,x-ratelimit-reset-tokens";

/// Answers a preflight request. Anything is allowed.
pub(super) fn preflight(asked: &HeaderMap) -> Response {
    let mut response = ().into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::VARY, HeaderValue::from_static(VARY));
    for (asked_by, allowed_by) in [
        (header::ACCESS_CONTROL_REQUEST_METHOD, header::ACCESS_CONTROL_ALLOW_METHODS),
        (header::ACCESS_CONTROL_REQUEST_HEADERS, header::ACCESS_CONTROL_ALLOW_HEADERS),
    ] {
        if let Some(value) = asked.get(asked_by) {
            headers.insert(allowed_by, value.clone());
        }
    }
    response
}

/// Lets scripts read a response.
pub(super) fn allow(response: &mut HeaderMap) {
    response.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    response.insert(header::VARY, HeaderValue::from_static(VARY));
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;
    use shared::error::X_SHOULD_RETRY;
    use shared_door::http::X_REQUEST_ID;

    use super::{
        super::{
            model_call::{X_DROPPED_MEMBERS, X_DROPPED_TOOLS, X_GENERATION_ID, X_MAX_TOKENS},
            rate_headers,
        },
        *,
    };

    #[test]
    fn scripts_may_read_every_header_of_ours() {
        let ours = [
            X_REQUEST_ID,
            header::RETRY_AFTER,
            X_SHOULD_RETRY,
            X_GENERATION_ID,
            X_MAX_TOKENS,
            X_DROPPED_TOOLS,
            X_DROPPED_MEMBERS,
        ];
        let ours = ours.iter().map(HeaderName::as_str).chain(rate_headers::NAMES);
        assert_eq!(EXPOSED.split(',').collect::<Vec<_>>(), ours.collect::<Vec<_>>());
    }
}
