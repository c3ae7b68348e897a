//! Endless interim heads from an upstream, a webhook's receiver and a telemetry receiver, next to a paying caller.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use futures_util::future::join_all;
use http::Method;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    paying::{Waits, chats},
    row::Row,
};
use tests::{
    harness::{ApiKey, MAX, Models, Options, Stack},
    upstream::Script,
};

/// An interim head, which clients skip.
const INTERIM: &str = "HTTP/1.1 100 Continue\r\n\r\n";
/// Number of heads in a write.
const AT_ONCE: usize = 4096;
/// Number of concurrent requests to the upstream, and the pause before each following one.
const CALLS: usize = 8;
const PAUSE: Duration = Duration::from_millis(50);
/// Number of the account's webhooks (the maximum), and number of keys whose events they receive.
const WEBHOOKS: usize = 20;
const KEYS: usize = 20;
/// Duration of an attack.
const TIME: Duration = Duration::from_secs(5);
/// How much longer the median of another customer's chats may take.
const DELAY: Duration = Duration::from_millis(100);

/// A server that answers every request only with interim heads, as fast as they are read.
pub struct EndlessHeads {
    address: SocketAddr,
    flooded: Arc<AtomicUsize>,
    stopped: Arc<AtomicBool>,
}

impl EndlessHeads {
    /// Starts a server on the loopback interface, with a thread per connection.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let (flooded, stopped) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (counted, stop) = (flooded.clone(), stopped.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let (counted, stop) = (counted.clone(), stop.clone());
                thread::spawn(move || flood(stream, &counted, &stop));
            }
        });
        Self { address, flooded, stopped }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the number of requests that were answered with interim heads.
    pub fn flooded(&self) -> usize {
        self.flooded.load(Ordering::Relaxed)
    }
}

impl Drop for EndlessHeads {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // Wakes the accepting thread.
        drop(TcpStream::connect(self.address));
    }
}

fn flood(mut stream: TcpStream, flooded: &AtomicUsize, stopped: &AtomicBool) {
    if stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {
        flooded.fetch_add(1, Ordering::Relaxed);
        let heads = INTERIM.repeat(AT_ONCE);
        while !stopped.load(Ordering::Relaxed) && stream.write_all(heads.as_bytes()).is_ok() {}
    }
}

/// Which of our clients receives the heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flooded {
    /// The gateway's client for upstreams.
    Upstream,
    /// The key-service's client for webhooks.
    Webhook,
    /// The client that exports telemetry.
    Telemetry,
}

impl Flooded {
    pub const ALL: [Self; 3] = [Self::Upstream, Self::Webhook, Self::Telemetry];

    const fn name(self) -> &'static str {
        match self {
            Self::Upstream => "an upstream",
            Self::Webhook => "webhooks' receivers",
            Self::Telemetry => "a receiver of telemetry",
        }
    }

    /// Starts an installation that exports its telemetry to `heads`, and whose model [`MAX`] has only this server.
    pub async fn stack(self, heads: &EndlessHeads) -> Stack {
        let env = if self == Self::Telemetry {
            vec![
                ("OTEL_EXPORTER_OTLP_ENDPOINT", heads.url()),
                ("OTEL_METRIC_EXPORT_INTERVAL", "200".to_owned()),
            ]
        } else {
            Vec::new()
        };
        let models = Models::Text(catalogue(&heads.url()).leak());
        let stack = Stack::with(Options { models, env, ..Options::default() }).await;
        stack.others_spend();
        stack
    }

    /// Makes the installation send requests to `heads` until `until`.
    pub async fn provoke(self, stack: &Stack, key: &ApiKey, heads: &EndlessHeads, until: Instant) {
        match self {
            Self::Upstream => {
                let calls = (0..CALLS).map(|_| call_again(stack, key, until));
                join_all(calls).await;
            }
            Self::Webhook => {
                let manage = async |path: &str, body| {
                    let url = stack.url(&format!("/v1/management/{path}"));
                    stack.http.send_as(&stack.account.management_key, Method::POST, &url, Some(body)).await
                };
                for number in 0..WEBHOOKS {
                    manage("webhooks", json!({"url": format!("{}/{number}", heads.url())})).await;
                }
                for _ in 0..KEYS {
                    manage("keys", json!({})).await;
                }
                tokio::time::sleep_until(until).await;
            }
            Self::Telemetry => tokio::time::sleep_until(until).await,
        }
    }
}

/// Calls the flooded model again and again. Drops the requests that are still in flight at the end.
async fn call_again(stack: &Stack, key: &ApiKey, until: Instant) {
    while Instant::now() < until {
        let call = stack.call(key, Script::tokens(12, 5)).with("model", MAX);
        if timeout_at(until, call.try_send()).await.is_ok() {
            sleep(PAUSE).await;
        }
    }
}

fn catalogue(heads: &str) -> String {
    let model = |id: &str, url: &str| {
        format!(
            r#"
[[model]]
id = "{id}"
owned_by = "model-service"
context_window = 131072
max_output_tokens = 8192

[model.price]
input = "0.10"
cached_input = "0.025"
output = "0.40"

[[model.upstream]]
kind = "vllm"
url = "{url}"
model = "scripted"
"#
        )
    };
    let service =
        "[service]\nname = \"Faregate\"\nprovider = \"Model\"\ndocs = \"https://docs.example.com\"\n";
    let (scripted, flooded) = (model(tests::harness::FLASH, "{url}"), model(MAX, &format!("{heads}/v1")));
    format!("{service}{scripted}{flooded}")
}

/// Returns a row for each client.
pub(super) async fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for flooded in Flooded::ALL {
        let heads = EndlessHeads::start();
        let stack = flooded.stack(&heads).await;
        let key = stack.key().await;
        let calm = chats(&stack, &key, Instant::now() + TIME / 5).await;
        let until = Instant::now() + TIME;
        let (beside, ()) =
            tokio::join!(chats(&stack, &key, until), flooded.provoke(&stack, &key, &heads, until));
        let delay = beside.median.saturating_sub(calm.median);
        let Waits { median, longest } = beside;
        rows.push(Row {
            name: format!("endless interim heads from {}, {} requests", flooded.name(), heads.flooded()),
            expected: format!("another's chat waits {DELAY:?} longer"),
            seen: format!("{delay:.0?} ({:.0?}, then {median:.0?}, {longest:.0?} at most)", calm.median),
            held: delay <= DELAY && heads.flooded() > 0,
        });
    }
    rows
}
