//! Client of the key-services' HTTP.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use parking_lot::Mutex;
use rustls::{ClientConfig, RootCertStore};
use shared_client::{ClientSettings, HttpClient, http_client};
use shared_door::tls::{MutualTls, Tls};

use crate::sizes::MANAGEMENT_IN_FLIGHT;

const CONNECT_DEADLINE: Duration = Duration::from_secs(2);
/// How long an idle connection is kept. The key-service keeps it longer, so no request is sent on a connection that is
/// being closed.
const IDLE: Duration = Duration::from_secs(20);

/// HTTP client. It is replaced when certificates change.
pub(super) enum KeyServiceClient {
    /// Client for key-services without TLS.
    Plain(HttpClient<Body>),
    /// Client for key-services with TLS, together with the certificates with which it was built.
    Tls(Tls, Mutex<(Arc<MutualTls>, HttpClient<Body>)>),
}

impl KeyServiceClient {
    pub(super) fn new(tls: Option<&Tls>) -> Self {
        let Some(tls) = tls else {
            // Without TLS settings, no address uses https, and no certificate is trusted.
            let no_roots = RootCertStore::empty();
            return Self::Plain(client(
                ClientConfig::builder().with_root_certificates(no_roots).with_no_client_auth(),
            ));
        };
        let current = tls.get();
        let made = client(current.client());
        Self::Tls(tls.clone(), Mutex::new((current, made)))
    }

    pub(super) fn get(&self) -> HttpClient<Body> {
        match self {
            Self::Plain(client) => client.clone(),
            Self::Tls(tls, made) => {
                let (current, mut made) = (tls.get(), made.lock());
                if !Arc::ptr_eq(&current, &made.0) {
                    *made = (current.clone(), client(current.client()));
                }
                made.1.clone()
            }
        }
    }
}

fn client(tls: ClientConfig) -> HttpClient<Body> {
    http_client(ClientSettings {
        tls: Some(tls),
        connect_deadline: CONNECT_DEADLINE,
        idle: IDLE,
        idle_connections: MANAGEMENT_IN_FLIGHT,
    })
}
