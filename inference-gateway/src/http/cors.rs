//! CORS on the public routes: any origin, no credentials.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use shared::process::http::{X_REQUEST_ID, X_SHOULD_RETRY};
use tower_http::cors::{AllowHeaders, AllowMethods, Any, CorsLayer};

use super::{X_GENERATION_ID, X_MAX_TOKENS, call::X_DROPPED_TOOLS, rate_headers};

/// The headers of responses that scripts may read, beside those of rates.
const EXPOSED: [HeaderName; 6] =
    [X_REQUEST_ID, header::RETRY_AFTER, X_SHOULD_RETRY, X_GENERATION_ID, X_MAX_TOKENS, X_DROPPED_TOOLS];

/// The layer of the routes, which also answers preflight requests.
pub(super) fn layer() -> CorsLayer {
    let of_rates = rate_headers::NAMES.map(HeaderName::from_static);
    CorsLayer::new()
        .allow_origin(Any)
        .allow_headers(AllowHeaders::mirror_request())
        .allow_methods(AllowMethods::mirror_request())
        .expose_headers(EXPOSED.into_iter().chain(of_rates).collect::<Vec<_>>())
}

/// Adds the headers that the layer adds to every response but a preflight's.
pub(super) fn allow(response: &mut HeaderMap) {
    const ALL: &str = "x-request-id,retry-after,x-should-retry,x-generation-id,x-max-tokens,x-dropped-tools,\
        x-ratelimit-limit-requests,x-ratelimit-remaining-requests,x-ratelimit-reset-requests,\
        x-ratelimit-limit-tokens,x-ratelimit-remaining-tokens,x-ratelimit-reset-tokens";
    const VARY: &str = "access-control-request-method, access-control-request-headers";
    response.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(ALL));
    response.insert(header::VARY, HeaderValue::from_static(VARY));
}

#[cfg(test)]
mod tests {
    use axum::{Router, body::Body, extract::Request, routing::get};
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn a_response_beside_the_layer_has_the_headers_of_one_behind_it() {
        let app = Router::new().route("/", get(async || ())).layer(layer());
        let request =
            Request::get("/").header(header::ORIGIN, "https://x.example").body(Body::empty()).unwrap();
        let behind = app.oneshot(request).await.unwrap();
        let mut beside = HeaderMap::new();
        allow(&mut beside);
        for name in beside.keys() {
            assert_eq!(behind.headers().get(name), beside.get(name), "{name}");
        }
        let of_cors = behind.headers().keys().filter(|name| name.as_str().starts_with("access-control-"));
        assert_eq!(of_cors.count(), 2);
    }
}
