//! The admin port: probes, metrics, and operators' commands to the running process.
//!
//! The port is never published, but metrics scrapers reach it, and a web page in a browser on the same machine could
//! reach it by DNS rebinding. So the port serves only known host names, and never a web page. A request that changes
//! the process must come from the same machine or container, with the token from the data directory.

use std::{net::IpAddr, sync::Arc};

use axum::{
    Router,
    extract::{Request, State},
    http::{Method, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use shared::{
    secret::{ExposeSecret, SecretString, same},
    served::ServedHosts,
    text::shown,
};
use shared_door::{
    http::{bearer, drain_unread, refuse_ambiguous},
    serve::PeerAddress,
};
use shared_observe::metrics::Metrics;

use super::{log_level, probe::Readiness};

/// Maximum number of characters that a refusal repeats from a host.
const MAX_SHOWN_HOST: usize = 100;

/// Decides which requests an admin port accepts.
pub(super) struct Guard {
    pub(super) address: IpAddr,
    pub(super) hosts: ServedHosts,
    /// Token that changes require. `None` if the process has no data directory, in which case it accepts no changes.
    pub(super) token: Option<SecretString>,
}

/// Routes the internal paths: `/livez`, `/readyz`, `/metrics`, `/log-level`, and the program's own.
pub(super) fn admin_router(metrics: Metrics, ready: Readiness, own: Router, guard: Guard) -> Router {
    let metrics = Arc::new(metrics);
    let render = move || {
        let text = metrics.render();
        async move { ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text) }
    };
    let readyz = move || {
        let ready = ready();
        async move {
            match ready.await {
                Ok(None) => (StatusCode::OK, "ready\n".to_owned()),
                Ok(Some(missing)) => (StatusCode::OK, format!("ready, but {missing}\n")),
                Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")),
            }
        }
    };
    let routes = Router::new()
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(render))
        .merge(log_level::routes())
        .merge(own);
    guarded(routes, guard)
}

fn guarded(routes: Router, guard: Guard) -> Router {
    routes
        .layer(middleware::from_fn_with_state(Arc::new(guard), check))
        .layer(middleware::from_fn(refuse_ambiguous))
        .layer(middleware::from_fn(drain_unread))
}

async fn check(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    match guard.refusal(&request) {
        Some((status, says)) if status == StatusCode::UNAUTHORIZED => {
            (status, [(header::WWW_AUTHENTICATE, "Bearer")], says).into_response()
        }
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    }
}

impl Guard {
    /// Returns why a request is refused, judged only by its head.
    fn refusal(&self, request: &Request) -> Option<(StatusCode, String)> {
        if let Some(host) = self.hosts.foreign(request.uri(), request.headers()) {
            let says = format!(
                "This port does not serve the host '{}'. Use localhost or the port's address, or add the name to \
                 FAREGATE_ADMIN_HOSTS.\n",
                shown(&host, MAX_SHOWN_HOST)
            );
            return Some((StatusCode::MISDIRECTED_REQUEST, says));
        }
        if request.headers().contains_key(header::ORIGIN) {
            return Some((StatusCode::FORBIDDEN, "This port does not serve browser pages.\n".into()));
        }
        if request.method() == Method::GET || request.method() == Method::HEAD {
            return None;
        }
        if !self.is_here(request) {
            return Some((
                StatusCode::FORBIDDEN,
                "Commands are accepted only from the same machine.\n".into(),
            ));
        }
        let Some(token) = &self.token else {
            let says = "This process accepts no commands, since it has no data directory for their token. Set \
                        FAREGATE_DATA_DIR.\n";
            return Some((StatusCode::FORBIDDEN, says.into()));
        };
        let presented = bearer(request.headers());
        if presented.is_ok_and(|presented| same(presented, token.expose_secret())) {
            return None;
        }
        let says = "Send `Authorization: Bearer` with the token in the file admin-token of the process's data \
                    directory.\n";
        Some((StatusCode::UNAUTHORIZED, says.into()))
    }

    /// Returns whether a request comes from the same machine or, inside a container, from the same container.
    fn is_here(&self, request: &Request) -> bool {
        request.extensions().get().is_some_and(|PeerAddress(peer)| {
            let peer = peer.to_canonical();
            peer.is_loopback() || peer == self.address.to_canonical()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use axum::{
        body::Body,
        http::{HeaderName, HeaderValue, header::HOST},
        routing::put,
    };
    use bytes::Bytes;
    use futures_util::{StreamExt, stream};
    use tower::ServiceExt;

    use super::*;
    use crate::admin_call::command_text;

    const TOKEN: &str = "of-the-data-directory";
    const BEARER: (HeaderName, &str) = (header::AUTHORIZATION, "Bearer of-the-data-directory");

    fn routes(token: Option<&str>) -> Router {
        let address = [10, 0, 0, 5].into();
        let hosts = ServedHosts::of_listener(address, vec!["inference-gateway".parse().unwrap()]);
        let change = async |body: Body| command_text(body).await;
        let routes = Router::new().route("/", put(change).get(async || "told"));
        guarded(routes, Guard { address, hosts, token: token.map(Into::into) })
    }

    fn request(method: Method, peer: Option<&str>, headers: &[(HeaderName, &str)], body: Body) -> Request {
        let mut request = Request::builder().method(method).uri("/").body(body).unwrap();
        for (name, value) in headers {
            request.headers_mut().append(name.clone(), HeaderValue::from_str(value).unwrap());
        }
        if let Some(peer) = peer {
            request.extensions_mut().insert(PeerAddress(peer.parse().unwrap()));
        }
        request
    }

    async fn status(method: Method, peer: Option<&str>, headers: &[(HeaderName, &str)]) -> u16 {
        let request = request(method, peer, headers, Body::empty());
        routes(Some(TOKEN)).oneshot(request).await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn commands_come_from_the_same_machine_and_questions_from_anywhere() {
        let named = (HOST, "10.0.0.5:9090");
        for peer in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.5"] {
            assert_eq!(status(Method::PUT, Some(peer), &[named.clone(), BEARER]).await, 200, "{peer}");
        }
        for peer in [Some("10.0.0.6"), Some("2001:db8::1"), None] {
            assert_eq!(status(Method::PUT, peer, &[named.clone(), BEARER]).await, 403, "{peer:?}");
            assert_eq!(status(Method::GET, peer, from_ref(&named)).await, 200, "{peer:?}");
        }
    }

    #[tokio::test]
    async fn a_request_for_a_foreign_host_or_of_a_page_is_refused_whatever_it_asks() {
        let here = Some("127.0.0.1");
        for method in [Method::GET, Method::PUT] {
            for host in ["localhost:9090", "127.0.0.1:9999", "10.0.0.5", "inference-gateway:9090"] {
                assert_eq!(
                    status(method.clone(), here, &[(HOST, host), BEARER]).await,
                    200,
                    "{method} {host}"
                );
                let of_page = [(HOST, host), BEARER, (header::ORIGIN, "http://localhost:9090")];
                assert_eq!(status(method.clone(), here, &of_page).await, 403, "{method} {host}");
            }
            for host in ["evil.example:9090", "10.0.0.6:9090", "localhost.evil.example"] {
                assert_eq!(
                    status(method.clone(), here, &[(HOST, host), BEARER]).await,
                    421,
                    "{method} {host}"
                );
            }
        }
        let foreign = request(Method::GET, here, &[(HOST, "evil.example")], Body::empty());
        let answer = routes(None).oneshot(foreign).await.unwrap();
        let says = axum::body::to_bytes(answer.into_body(), 1024).await.unwrap();
        let says = String::from_utf8_lossy(&says).into_owned();
        assert!(says.contains("'evil.example'") && says.contains("FAREGATE_ADMIN_HOSTS"), "{says}");
    }

    #[tokio::test]
    async fn a_change_carries_the_token_of_the_data_directory() {
        let (here, named) = (Some("127.0.0.1"), (HOST, "localhost"));
        for wrong in ["", "Bearer", "Bearer of-the-data-directorz", "Basic of-the-data-directory", TOKEN] {
            let headers = [named.clone(), (header::AUTHORIZATION, wrong)];
            assert_eq!(status(Method::PUT, here, &headers).await, 401, "{wrong}");
        }
        assert_eq!(status(Method::PUT, here, from_ref(&named)).await, 401);
        assert_eq!(status(Method::POST, here, from_ref(&named)).await, 401);
        assert_eq!(status(Method::GET, here, from_ref(&named)).await, 200);
        let change = request(Method::PUT, here, &[named, BEARER], Body::empty());
        assert_eq!(routes(None).oneshot(change).await.unwrap().status(), 403, "without a data directory");
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_whose_body_stalls_is_refused_in_time() {
        let half = stream::iter([Ok::<_, std::io::Error>(Bytes::from("half an addr"))]);
        let body = Body::from_stream(half.chain(stream::pending()));
        let headers = [(HOST, "localhost"), BEARER];
        let stalled = request(Method::PUT, Some("127.0.0.1"), &headers, body);
        assert_eq!(routes(Some(TOKEN)).oneshot(stalled).await.unwrap().status(), 408);
    }
}
