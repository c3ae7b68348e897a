//! A model server that does what the request tells it to: streams, stalls, cuts, lies, and counts.
//!
//! It speaks the OpenAI chat API under `/v1`. What it does is told by the last user message (see [`Script::message`]),
//! which a gateway forwards untouched, or by a default for requests that tell nothing.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::sleep,
};

mod answer;
mod cache;
mod record;
mod render;
mod request;
mod script;

pub use record::{End, Generation};
pub use script::{CallIds, Fault, ReasoningField, Script, Shape, Style, Told, Usage, text};

/// Pause between two looks at the records while waiting for something to happen.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// An upstream in this process, on a thread and a port of its own.
pub struct Upstream {
    address: SocketAddr,
    state: Arc<State>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// What all connections of an upstream share.
pub struct State {
    /// What requests without a script get.
    default: Mutex<Script>,
    records: Option<record::Records>,
    cache: cache::PrefixCache,
    open_connections: AtomicUsize,
    token_counts: AtomicUsize,
}

impl State {
    /// The state of a new upstream; without `records` it remembers nothing, as a benchmark wants it.
    pub fn new(default: Script, records: bool) -> Self {
        Self {
            default: Mutex::new(default),
            records: records.then(record::Records::default),
            cache: cache::PrefixCache::default(),
            open_connections: AtomicUsize::new(0),
            token_counts: AtomicUsize::new(0),
        }
    }

    /// Requests of this tag that came before.
    fn earlier(&self, tag: &str) -> u64 {
        self.records.as_ref().map_or(0, |records| records.count(tag))
    }

    fn default_script(&self) -> Script {
        self.default.lock().unwrap().clone()
    }
}

impl Upstream {
    /// Starts an upstream on a free port of the loopback.
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::new(Script::default(), true));
        let (stop, mut stopped) = watch::channel(false);
        let shared = state.clone();
        // A thread of its own: a test that blocks, or drops its stack, does not stop its upstream.
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
        Self { address, state, stop, thread: Some(thread) }
    }

    /// The base address, as a catalogue names it.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// What requests without a script of their own get from now on.
    pub fn set_default(&self, script: Script) {
        *self.state.default.lock().unwrap() = script;
    }

    /// Every chat request that came, in their order.
    pub fn generations(&self) -> Vec<Generation> {
        self.records().all()
    }

    /// The chat requests whose script has this tag: more than one where the gateway tried again.
    pub fn tagged(&self, tag: &str) -> Vec<Generation> {
        self.generations().into_iter().filter(|generation| generation.tag == tag).collect()
    }

    /// Waits until the last request of this tag is as wanted.
    pub async fn wait_for(&self, tag: &str, what: &str, wanted: impl Fn(&Generation) -> bool) -> Generation {
        let deadline = Instant::now() + crate::harness::PATIENCE;
        loop {
            let last = self.tagged(tag).pop();
            match last {
                Some(generation) if wanted(&generation) => return generation,
                other => assert!(Instant::now() < deadline, "waited in vain for {tag} to {what}: {other:?}"),
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Connections that are open now.
    pub fn open_connections(&self) -> usize {
        self.state.open_connections.load(Ordering::Relaxed)
    }

    /// How often it was asked to count the tokens of a prompt.
    pub fn token_counts(&self) -> usize {
        self.state.token_counts.load(Ordering::Relaxed)
    }

    /// Closes the port and cuts every connection.
    pub fn stop(&mut self) {
        // The receiver is gone only when the thread has ended already.
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

/// Answers on every connection, for ever.
pub async fn serve(listener: TcpListener, state: Arc<State>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, state.clone()));
            }
            // Too many open files, say: those that are open must end first.
            Err(_) => sleep(LOOK_EVERY).await,
        }
    }
}

async fn connection(stream: TcpStream, state: Arc<State>) {
    // Streamed tokens are small writes; each must leave at once.
    let _ = stream.set_nodelay(true);
    let open = OpenConnection::new(&state);
    let service = service_fn(|request: http::Request<Incoming>| answer::answer(request, state.clone()));
    // An error is how a scripted cut looks from here, or a client that left.
    let _: Result<(), hyper::Error> =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    drop(open);
}

/// Counts a connection for as long as it lives, whatever ends it.
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

/// How a connection is cut on purpose.
fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the script cuts here")
}
