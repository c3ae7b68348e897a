//! A model server that follows a script in the request: it streams, stalls, cuts connections, reports false usage, and
//! records what it served.
//!
//! It serves OpenAI's chat API under `/v1`, and OpenAI's Responses and Anthropic's Messages at every path that ends in
//! their names. The script is in the last user message (see [`Script::message`]), which a gateway forwards unchanged.
//! Requests without one get a default.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::watch,
    time::sleep,
};

mod answer;
mod cache;
mod calls;
pub(crate) mod chat;
mod conversation;
pub(crate) mod faults;
mod native;
pub(crate) mod prompts;
mod record;
mod reply;
mod script;
mod state;
mod steps;
mod style;

pub use calls::ScriptedCall;
pub use faults::fault::{Fault, Shape};
pub use faults::too_long::TooLong;
pub use faults::vendor_error::{ORGANIZATION, RETRY_AFTER_SECONDS, VendorError};
pub use record::{Api, Count, End, Generation};
pub use script::{Script, Told, Usage, text};
pub use state::{Keep, State};
pub use style::{CallIds, ReasoningField, ReasoningTold, Style};

/// Longest wait for a generation, so that a test fails rather than hangs.
const GENERATION_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which the records are polled.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// An upstream in this process, with its own thread and port.
pub struct Upstream {
    address: SocketAddr,
    state: Arc<State>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// Credential that the Responses and Messages APIs demand by default, in any header.
pub const UPSTREAM_KEY: &str = "sk-scripted-upstream";

impl Upstream {
    /// Starts an upstream on a free loopback port.
    pub fn start() -> Self {
        Self::keeping(Keep::default())
    }

    /// Starts an upstream that keeps these records.
    pub fn keeping(keep: Keep) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::new(Script::default(), keep));
        let (stop, mut stopped) = watch::channel(false);
        let shared = state.clone();
        // The upstream has its own thread, so that it continues while a test blocks or drops its stack.
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    () = serve(listener, shared) => {}
                    _ = stopped.wait_for(|stop| *stop) => {}
                }
            });
        });
        let upstream = Self { address, state, stop, thread: Some(thread) };
        upstream.set_key(UPSTREAM_KEY);
        upstream
    }

    /// Returns the base address, as in a catalogue.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Sets the script for requests that have none.
    pub fn set_default(&self, script: Script) {
        *self.state.default.lock().unwrap() = script;
    }

    /// Sets the credential that Responses and Messages demand, in any header. The default is [`UPSTREAM_KEY`].
    pub fn set_key(&self, key: &str) {
        *self.state.key.lock().unwrap() = Some(key.to_owned());
    }

    /// Sets the context window that the upstream reports for its models.
    pub fn set_window(&self, tokens: u64) {
        *self.state.window.lock().unwrap() = Some(tokens);
    }

    /// Returns all requests for generations in order of arrival.
    pub fn generations(&self) -> Vec<Generation> {
        self.records().all()
    }

    /// Returns the counts for all requests in order of arrival, if the upstream keeps only counts.
    pub fn counts(&self) -> Vec<Count> {
        self.records().counts()
    }

    /// Returns the requests whose script has this tag. There are several if the gateway retried.
    pub fn tagged(&self, tag: &str) -> Vec<Generation> {
        self.generations().into_iter().filter(|generation| generation.tag == tag).collect()
    }

    /// Waits until the last request with this tag meets a condition.
    pub async fn wait_for(&self, tag: &str, what: &str, wanted: impl Fn(&Generation) -> bool) -> Generation {
        let deadline = Instant::now() + GENERATION_TIMEOUT;
        loop {
            let last = self.tagged(tag).pop();
            match last {
                Some(generation) if wanted(&generation) => return generation,
                other => assert!(Instant::now() < deadline, "waited in vain for {tag} to {what}: {other:?}"),
            }
            sleep(LOOK_EVERY).await;
        }
    }

    pub fn open_connections(&self) -> usize {
        self.state.open_connections.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of prompts whose tokens were counted at the same time.
    pub fn most_counts_at_once(&self) -> usize {
        self.state.most_counting.load(Ordering::Relaxed)
    }

    /// Returns the number of requests to count a prompt's tokens.
    pub fn token_counts(&self) -> usize {
        self.state.token_counts.load(Ordering::Relaxed)
    }

    /// Closes the port and cuts all connections.
    pub fn stop(&mut self) {
        // The receiver is gone only if the thread has ended.
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the upstream's thread does not panic");
        }
    }

    fn records(&self) -> &record::Records {
        self.state.records.as_ref().expect("an upstream in this process keeps records")
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Serves all connections, forever.
pub async fn serve(listener: TcpListener, state: Arc<State>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Streamed tokens are small writes that must be sent at once.
                let _ = stream.set_nodelay(true);
                tokio::spawn(serve_connection(stream, state.clone()));
            }
            // For example, too many files are open; some may be closed soon.
            Err(_) => sleep(LOOK_EVERY).await,
        }
    }
}

/// Serves one connection to its end.
pub async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    state: Arc<State>,
) {
    let open = OpenConnection::new(&state);
    let service = service_fn(|request: http::Request<Incoming>| answer::answer(request, state.clone()));
    // Scripted cuts, and clients that leave, end a connection with an error.
    let _: Result<(), hyper::Error> =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    drop(open);
}

/// Counts an open connection until it is dropped.
struct OpenConnection<'a>(&'a State);

impl<'a> OpenConnection<'a> {
    fn new(state: &'a State) -> Self {
        state.open_connections.fetch_add(1, Ordering::Relaxed);
        Self(state)
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.open_connections.fetch_sub(1, Ordering::Relaxed);
    }
}
