//! Callers without a credential, many and busy, beside one that pays.

use std::{
    io::{BufRead, BufReader},
    net::{IpAddr, SocketAddr},
    process::{Child, Command, Stdio},
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

use super::{Row, paying::slowest, plain, silent::address};
use tests::harness::{Http, Stack};

/// Time that unauthenticated clients may add to a paying caller's request.
const DELAY: Duration = Duration::from_millis(100);
/// Time that they may add where they keep the machine busy: its cores are shared with them.
const BUSY_DELAY: Duration = Duration::from_secs(1);
/// Addresses of busy unauthenticated clients, all of the loopback, and connections from each.
const ADDRESSES: u8 = 8;
const CONNECTIONS: usize = 400;
/// Time after which an unauthenticated client whose connection was closed opens another one.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Connections that ask again and again, and requests at once on each.
const ASKING: (usize, usize) = (16, 100);
/// Rounds of the paying caller beside busy unauthenticated clients.
const ROUNDS: usize = 10;

/// Address of an unauthenticated client: another machine, as far as a server on the loopback can tell.
pub(super) const fn client_address(number: u8) -> IpAddr {
    IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 1, number))
}

/// A connection from that address.
pub async fn connect_from(source: IpAddr, address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(source, 0))?;
    socket.connect(address).await
}

/// Silent sockets by the thousand, opened by several processes, beside a paying caller.
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

/// Unauthenticated clients from several addresses that take all places with requests that stall, and unauthenticated clients that ask without a pause.
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
    vec![stalled, row(name, (calm, worst), BUSY_DELAY)]
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

/// A process that opens silent sockets, and keeps them until it is dropped.
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

    /// Waits until it has opened them, and returns how many there are.
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
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Connections whose requests stall; one that is closed is opened again.
pub struct Stalling(Vec<JoinHandle<()>>);

impl Stalling {
    /// Opens so many from each of so many addresses.
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

/// Sends part of a request from that address, and again whenever the server closes the connection.
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

/// Connections over HTTP/2 that ask with invented keys without a pause.
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

/// A key of the right form that no account has.
pub fn invented_key(class: Class, number: usize) -> String {
    let mut random = [7; 32];
    random[..8].copy_from_slice(&number.to_le_bytes());
    let prefix = Prefix::parse("fg").expect("it is a prefix");
    prefix.mint(class, random).expose_secret().to_owned()
}
