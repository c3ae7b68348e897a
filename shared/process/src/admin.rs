//! The admin port: probes, metrics, and an operator's commands to the running process.
//!
//! The port is never published, but whoever scrapes its metrics reaches it. So requests that change the process are
//! taken only from the same machine, where commands run; inside a container, that includes its own address.

use std::{net::IpAddr, sync::Arc};

use axum::{
    Router,
    extract::Request,
    http::{Method, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use shared_door::serve::PeerAddress;
use shared_observe::metrics::Metrics;

use super::{log_level, probe::Readiness};

/// Routes the internal paths: `/livez`, `/readyz`, `/metrics`, `/log-level`, and the program's own. `address` is that
/// of the port.
pub(super) fn admin_router(metrics: Metrics, ready: Readiness, own: Router, address: IpAddr) -> Router {
    let metrics = Arc::new(metrics);
    let render = move || {
        let text = metrics.render();
        async move { ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text) }
    };
    let readyz = move || {
        let ready = ready();
        async move {
            match ready.await {
                Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
                Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")),
            }
        }
    };
    Router::new()
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(render))
        .merge(log_level::routes())
        .merge(own)
        .layer(middleware::from_fn(move |request, next| only_from_here(address, request, next)))
}

/// Refuses a request from another machine that changes something.
async fn only_from_here(address: IpAddr, request: Request, next: Next) -> Response {
    let changes = request.method() != Method::GET && request.method() != Method::HEAD;
    let is_here = request.extensions().get().is_some_and(|PeerAddress(peer)| {
        let peer = peer.to_canonical();
        peer.is_loopback() || peer == address.to_canonical()
    });
    if changes && !is_here {
        return (StatusCode::FORBIDDEN, "Commands are taken from the same machine only.\n").into_response();
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, routing::put};
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn commands_come_from_the_same_machine_and_questions_from_anywhere() {
        let here: IpAddr = [10, 0, 0, 5].into();
        let routes = Router::new().route("/", put(async || "done").get(async || "told"));
        let routes =
            routes.layer(middleware::from_fn(move |request, next| only_from_here(here, request, next)));
        let status = async |method: Method, peer: Option<&str>| {
            let mut request = Request::builder().method(method).uri("/").body(Body::empty()).unwrap();
            if let Some(peer) = peer {
                request.extensions_mut().insert(PeerAddress(peer.parse().unwrap()));
            }
            routes.clone().oneshot(request).await.unwrap().status().as_u16()
        };
        for peer in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.5"] {
            assert_eq!(status(Method::PUT, Some(peer)).await, 200, "{peer}");
        }
        for peer in [Some("10.0.0.6"), Some("2001:db8::1"), None] {
            assert_eq!(status(Method::PUT, peer).await, 403, "{peer:?}");
            assert_eq!(status(Method::GET, peer).await, 200, "{peer:?}");
        }
    }
}
