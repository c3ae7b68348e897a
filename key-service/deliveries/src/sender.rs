//! One attempt to deliver an event (as a signed POST) or an alert's message. Only the status of the answer counts.

use std::{error::Error, io, time::Duration};

use bytes::Bytes;
use http::{HeaderName, Request, header, request::Builder};
use http_body_util::{BodyExt, Full, Limited};
use rustls::ClientConfig;
use shared::{network::Network, time::Timestamp};
use shared_client::{ClientSettings, HttpClient, NoFinalHead, http_client_over};
use tokio::time::{Instant, timeout_at};

use super::connector::{Connector, NotConnected};
use domain::webhook::{Delivery, ReceiverAnswer, WebhookSecret, WebhookUrl};

/// Timeout of an attempt, from resolving the host to the end of the answer.
pub(super) const ATTEMPT_DEADLINE: Duration = Duration::from_secs(10);
/// Maximum number of bytes of an answer's body to read and discard, so that most receivers can finish sending.
const DRAINED_BYTES: usize = 16 << 10;
const USER_AGENT: &str = concat!("Faregate/", env!("CARGO_PKG_VERSION"));

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Sends events. Every attempt opens a new connection, because the host may resolve to another address each time.
pub struct Sender {
    client: HttpClient<Full<Bytes>, Connector>,
    pub(super) deadline: Duration,
}

impl Sender {
    /// Makes a sender that may connect to public addresses and to these networks.
    pub fn new(allowed: &[Network]) -> Self {
        Self::over(Connector::new(allowed), None)
    }

    /// Makes a sender with this connector. The sender trusts the public CAs unless `tls` is given.
    pub(super) fn over(connector: Connector, tls: Option<ClientConfig>) -> Self {
        let deadline = ATTEMPT_DEADLINE;
        let settings =
            ClientSettings { tls, connect_deadline: deadline, idle: deadline, idle_connections: 0 };
        Self { client: http_client_over(connector, settings), deadline }
    }

    /// Sends an event once. Redirects are not followed.
    pub(super) async fn send(
        &self,
        url: &WebhookUrl,
        secret: &WebhookSecret,
        delivery: &Delivery,
        now: Timestamp,
    ) -> ReceiverAnswer {
        let Delivery { event, body, .. } = delivery;
        let request = post(url)
            .header(WEBHOOK_ID, event.to_string())
            .header(WEBHOOK_TIMESTAMP, now.seconds().to_string())
            .header(WEBHOOK_SIGNATURE, secret.sign(*event, now, body))
            .body(Full::from(body.clone()));
        self.answer(request).await
    }

    /// Sends JSON once, without a signature. Redirects are not followed.
    pub(super) async fn post(&self, url: &WebhookUrl, body: String) -> ReceiverAnswer {
        self.answer(post(url).body(Full::from(body))).await
    }

    async fn answer(&self, request: http::Result<Request<Full<Bytes>>>) -> ReceiverAnswer {
        let Ok(request) = request else { return ReceiverAnswer::None("the URL cannot be used".into()) };
        let deadline = Instant::now() + self.deadline;
        match timeout_at(deadline, self.client.request(request)).await {
            Ok(Ok(response)) => {
                let status = response.status().as_u16();
                // Only the status counts, even if the body never ends.
                let rest = Limited::new(response.into_body(), DRAINED_BYTES).collect();
                drop(timeout_at(deadline, rest).await);
                ReceiverAnswer::Status(status)
            }
            Ok(Err(error)) => ReceiverAnswer::None(reason(&error)),
            Err(_) => ReceiverAnswer::None("no answer in time".into()),
        }
    }
}

fn post(url: &WebhookUrl) -> Builder {
    Request::post(url.as_str())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, USER_AGENT)
}

/// Returns the reason why an attempt failed, for the webhook's owner. The reason contains no addresses.
fn reason(error: &hyper_util::client::legacy::Error) -> String {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(known) = error.downcast_ref::<NotConnected>() {
            return known.to_string();
        }
        if let Some(endless) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref)
            && let Some(known) = endless.downcast_ref::<NoFinalHead>()
        {
            return known.to_string();
        }
        cause = error.source();
    }
    let reason =
        if error.is_connect() { "cannot establish a TLS connection" } else { "the connection broke" };
    reason.into()
}
