//! Busy callers without a credential, next to a paying caller.

use std::{
    io::{BufRead, BufReader},
    net::{IpAddr, SocketAddr},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use shared::{
    key::{Class, Prefix},
    secret::ExposeSecret,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    task::JoinHandle,
};

use super::{
    paying::slowest,
    row::{Row, plain},
    silent::address,
};
use tests::harness::{Http, Stack};

/// How much longer unauthenticated clients may make a paying caller wait.
const DELAY: Duration = Duration::from_millis(100);
/// How much longer if the clients keep the machine busy, since they use the same cores.
const BUSY_DELAY: Duration = Duration::from_secs(1);
/// Number of loopback addresses that busy unauthenticated clients use, and number of connections from each.
const ADDRESSES: u8 = 8;
const CONNECTIONS: usize = 400;
/// How soon an unauthenticated client whose connection was closed opens another one.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Number of connections that send one request after another, and of concurrent requests on each.
const ASKING: (usize, usize) = (16, 100);
/// Number of connections that send frames without a pause, and how much longer they may make a paying caller wait.
const FRAMING: usize = 16;
const FRAMING_DELAY: Duration = Duration::from_millis(250);
/// Number of rounds that the paying caller makes next to busy unauthenticated clients.
const ROUNDS: usize = 10;

/// Returns the address of an unauthenticated client. To a server on the loopback interface, it looks like another
/// machine.
pub(super) const fn client_address(number: u8) -> IpAddr {
    IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 1, number))
}

pub async fn connect_from(source: IpAddr, address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(source, 0))?;
    socket.connect(address).await
}

/// Opens thousands of silent sockets from several processes, next to a paying caller.
pub(super) async fn flood_row(stack: &Stack, sockets: usize, processes: usize) -> Row {
    let key = stack.key().await;
    let pooled = Http::new();
    let calm = slowest(stack, &key, &pooled).await;
    let address = silent_address(stack);
    let began = Instant::now();
    let opening = tokio::task::spawn_blocking(move || {
        let children: Vec<_> = (0..processes).map(|_| Flooder::start(address, sockets / processes)).collect();
        children.into_iter().map(Flooder::opened).collect::<Vec<_>>()
    });
    let mut worst = Duration::ZERO;
    while !opening.is_finished() {
        worst = worst.max(slowest(stack, &key, &pooled).await);
    }
    let flooders = opening.await.unwrap();
    let took = began.elapsed();
    for _ in 0..ROUNDS {
        worst = worst.max(slowest(stack, &key, &pooled).await);
    }
    let opened: usize = flooders.iter().map(|(_, opened)| opened).sum();
    row(format!("{opened} silent sockets in {:.1} s", took.as_secs_f64()), (calm, worst), DELAY)
}

/// Runs unauthenticated clients from several addresses: some take all slots with stalled requests, and some send
/// requests without a pause.
pub(super) async fn rows(stack: &Stack) -> Vec<Row> {
    let key = stack.key().await;
    let pooled = Http::new();
    let calm = slowest(stack, &key, &pooled).await;
    let address = silent_address(stack);
    let stalling = Stalling::from_addresses(address, ADDRESSES, CONNECTIONS).await;
    let mut worst = Duration::ZERO;
    for _ in 0..ROUNDS {
        worst = worst.max(slowest(stack, &key, &pooled).await);
    }
    drop(stalling);
    let name = format!("{ADDRESSES} × {CONNECTIONS} connections that stall their requests, again and again");
    let stalled = row(name, (calm, worst), DELAY);
    let asking = Asking::begin(address, ASKING.0, ASKING.1).await;
    let mut worst = Duration::ZERO;
    for _ in 0..ROUNDS {
        worst = worst.max(slowest(stack, &key, &pooled).await);
    }
    drop(asking);
    let name = format!("{} × {} requests at once with invented keys, without a pause", ASKING.0, ASKING.1);
    let mut rows = vec![stalled, row(name, (calm, worst), BUSY_DELAY)];
    for frames in Frames::ALL {
        let sending = Framing::begin(address, frames, FRAMING);
        let mut worst = Duration::ZERO;
        for _ in 0..ROUNDS {
            worst = worst.max(slowest(stack, &key, &pooled).await);
        }
        drop(sending);
        let name = format!("{FRAMING} connections that send {} without a pause", frames.name());
        rows.push(row(name, (calm, worst), FRAMING_DELAY));
    }
    rows
}

fn silent_address(stack: &Stack) -> SocketAddr {
    address(stack.server().public())
}

fn row(name: String, (calm, worst): (Duration, Duration), bound: Duration) -> Row {
    let delay = worst.saturating_sub(calm);
    Row {
        name,
        expected: format!("a caller waits {bound:?} longer"),
        seen: format!("{delay:.0?} ({calm:.0?}, then {worst:.0?})"),
        held: delay <= bound,
    }
}

/// A process that opens silent sockets and keeps them until it is dropped.
struct Flooder(Child);

impl Flooder {
    fn start(address: SocketAddr, sockets: usize) -> Self {
        let program = std::env::current_exe().expect("an executable has a path");
        let arguments =
            ["--flood".to_owned(), address.to_string(), "--sockets".to_owned(), sockets.to_string()];
        let mut command = Command::new(program);
        let child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Self(child.expect("this program can be started again"))
    }

    /// Waits until the sockets are open. Returns their number.
    fn opened(mut self) -> (Self, usize) {
        let mut line = String::new();
        let printed = self.0.stdout.take().expect("it is piped");
        BufReader::new(printed).read_line(&mut line).expect("it prints a line");
        let opened = line.trim().parse().expect("a number of sockets");
        (self, opened)
    }
}

impl Drop for Flooder {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Connections with stalled requests. Whenever the server closes one, another is opened.
pub struct Stalling(Vec<JoinHandle<()>>);

impl Stalling {
    /// Opens `each` connections from each of this many addresses.
    pub async fn from_addresses(address: SocketAddr, addresses: u8, each: usize) -> Self {
        let mut tasks = Vec::new();
        for number in 1..=addresses {
            for batch in 0..each {
                tasks.push(tokio::spawn(stall(client_address(number), address)));
                if batch % 50 == 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
        Self(tasks)
    }
}

impl Drop for Stalling {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Sends part of a request from this address, and does so again whenever the server closes the connection.
async fn stall(source: IpAddr, address: SocketAddr) {
    let key = invented_key(Class::Api, 1);
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: \
         application/json\r\ncontent-length: 1000\r\n\r\n{{"
    );
    loop {
        if let Ok(mut stream) = connect_from(source, address).await {
            // The server may have closed it already.
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

/// HTTP/2 frames that are cheap for their sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// Pings, each of which requires an answer.
    Pings,
    /// Heads with thousands of references to one long header field.
    References,
}

impl Frames {
    pub const ALL: [Self; 2] = [Self::Pings, Self::References];

    const fn name(self) -> &'static str {
        match self {
            Self::Pings => "pings",
            Self::References => "heads of references to one field",
        }
    }

    /// Returns the first bytes of a connection.
    fn opening(self) -> Vec<u8> {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let mut opening = [&preface[..], &frame(SETTINGS, 0, 0, &[])].concat();
        if self == Self::References {
            // `GET /`, and a field `x` with 3,800 bytes for the table: a literal with indexing, with its length in
            // HPACK.
            let field = [&b"\x40\x01x\x7f\xd9\x1c"[..], &[b'a'; 3_800]].concat();
            opening.extend(frame(HEADERS, END, 1, &[GET, &field[..]].concat()));
        }
        opening
    }

    /// Returns further frames; `stream` is the number of the next stream.
    fn more(self, stream: &mut u32) -> Vec<u8> {
        match self {
            Self::Pings => frame(PING, 0, 0, b"12345678").repeat(4_000),
            Self::References => {
                let references = [GET, &[0xbe; 16_000]].concat();
                let mut frames = Vec::new();
                for _ in 0..50 {
                    *stream += 2;
                    frames.extend(frame(HEADERS, END, *stream, &references));
                }
                frames
            }
        }
    }
}

/// Frame types and flags.
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const END: u8 = 5;
/// `GET /` in HPACK's static table.
const GET: &[u8] = b"\x82\x86\x84\x41\x01x";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame is short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Connections that send frames without a pause. Whenever the server closes one, another is opened.
pub struct Framing {
    sending: Vec<JoinHandle<()>>,
    taken: Arc<AtomicU64>,
}

impl Framing {
    pub fn begin(address: SocketAddr, frames: Frames, connections: usize) -> Self {
        let taken = Arc::<AtomicU64>::default();
        let send = |_| tokio::spawn(send_frames(address, frames, taken.clone()));
        Self { sending: (0..connections).map(send).collect(), taken }
    }

    /// Returns the number of bytes that the server, or the operating system in front of it, has accepted from them.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for Framing {
    fn drop(&mut self) {
        self.sending.iter().for_each(JoinHandle::abort);
    }
}

async fn send_frames(address: SocketAddr, frames: Frames, taken: Arc<AtomicU64>) {
    loop {
        if let Ok(stream) = connect_from(client_address(1), address).await {
            let (mut answers, mut requests) = stream.into_split();
            let reading =
                tokio::spawn(async move { tokio::io::copy(&mut answers, &mut tokio::io::sink()).await });
            let (mut bytes, mut number) = (frames.opening(), 1);
            while requests.write_all(&bytes).await.is_ok() {
                taken.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                bytes = frames.more(&mut number);
            }
            reading.abort();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// HTTP/2 connections that send requests with invented keys without a pause.
struct Asking(Vec<JoinHandle<()>>);

impl Asking {
    async fn begin(address: SocketAddr, connections: usize, each: usize) -> Self {
        let opened = (0..connections).map(|number| ask_again(address, number, each));
        Self(join_all(opened.map(async |asking| tokio::spawn(asking))).await)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

async fn ask_again(address: SocketAddr, number: usize, each: usize) {
    let bearer: http::HeaderValue =
        format!("Bearer {}", invented_key(Class::Api, number)).parse().expect("a key fits into a header");
    loop {
        let Ok(stream) = connect_from(client_address(1), address).await else { continue };
        let connecting = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let Ok((sender, connection)) = connecting.await else { continue };
        let carrying = tokio::spawn(connection);
        while !carrying.is_finished() {
            let asked = (0..each).map(|_| {
                let mut request = plain(http::Method::GET, "http://x/v1/models");
                request.headers_mut().insert(http::header::AUTHORIZATION, bearer.clone());
                let mut sender = sender.clone();
                async move { sender.send_request(request).await.map(drop) }
            });
            if join_all(asked).await.iter().any(Result::is_err) {
                break;
            }
        }
        carrying.abort();
    }
}

/// Returns a well-formed key that does not exist.
pub fn invented_key(class: Class, number: usize) -> String {
    let mut random = [7; 32];
    random[..8].copy_from_slice(&number.to_le_bytes());
    let prefix = Prefix::parse("fg").expect("it is a prefix");
    prefix.mint(class, random).expose_secret().to_owned()
}
