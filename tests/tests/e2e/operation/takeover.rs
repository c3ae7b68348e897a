//! A program stops, and a new process takes over on the same machine. They use the protocols of a service manager.

use std::{
    fs,
    net::TcpListener,
    os::unix::net::UnixDatagram,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use tempfile::TempDir;
use tests::{
    harness::{ApiKey, Deployment, Form, Http, Options, PATIENCE, Server, Settings, Stack, cost_of},
    upstream::Script,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::operation::reload::logged;

/// How often another process takes over.
const TAKEOVERS: usize = 3;
/// Number of clients that keep their connections, and number of clients that open a new connection for each request.
const CLIENTS: usize = 4;

/// Clients that send their requests to the socket that is passed on.
struct Load<'a> {
    stack: &'a Stack,
    key: &'a ApiKey,
    base: String,
    over: AtomicBool,
    sent: AtomicUsize,
}

impl Load<'_> {
    async fn client(&self, keeps_connections: bool) {
        let pooled = Http::new();
        while !self.over.load(Ordering::Relaxed) {
            let http = if keeps_connections { pooled.clone() } else { Http::new() };
            let call = self.stack.call_to(self.base.clone(), self.key, Script::tokens(12, 5).pace(2));
            let call = call.over(&http);
            if self.sent.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
                let answer = call.try_send().await.unwrap_or_else(|e| panic!("a connection failed: {e}"));
                assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 5)), "{answer}");
            } else {
                call.stream().await.rest().await.assert_done();
            }
        }
    }
}

#[apply(fact)]
async fn a_program_that_takes_over_a_socket_fails_no_connection() {
    let stack =
        Stack::with(Options { deployment: Deployment::services(1, 1, Form::Alone), ..Options::default() })
            .await;
    let key = stack.key().await;
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let base = format!("http://{}", listener.local_addr().unwrap());
    let gateway = |number: usize| {
        let mut settings = stack.server().settings().clone();
        settings.data = stack.data().join(format!("takes-over-{number}"));
        fs::create_dir_all(&settings.data).unwrap();
        settings.env.push(("FAREGATE_DRAIN_PAUSE_SECONDS", "2".into()));
        settings.listener = Some(listener.clone());
        settings
    };
    let load = Load {
        stack: &stack,
        key: &key,
        base: base.clone(),
        over: AtomicBool::default(),
        sent: AtomicUsize::new(0),
    };
    let mut serving = Server::start(&gateway(0)).await;
    assert_eq!(serving.public(), base, "it serves the socket that it was given");
    let takeovers = async {
        for number in 1..=TAKEOVERS {
            sleep(Duration::from_millis(300)).await;
            let next = Server::start(&gateway(number)).await;
            serving.terminate();
            assert!(serving.ended().await.success(), "{}", serving.last_words());
            serving = next;
        }
        sleep(Duration::from_millis(300)).await;
        load.over.store(true, Ordering::Relaxed);
    };
    let clients = (0..2 * CLIENTS).map(|number| load.client(number % 2 == 0));
    tokio::join!(takeovers, join_all(clients));
    println!("{TAKEOVERS} takeovers, {} requests, none failed", load.sent.into_inner());
}

#[apply(fact)]
async fn a_connection_that_was_accepted_before_a_socket_is_left_is_served_when_its_request_comes() {
    let folder = TempDir::new().unwrap();
    let mut settings = Settings::all_in_one(folder.path(), Vec::new());
    settings.listener = Some(Arc::new(TcpListener::bind("127.0.0.1:0").unwrap()));
    let server = Server::start(&settings).await;
    let mut early = TcpStream::connect(server.public().trim_start_matches("http://")).await.unwrap();
    // This request comes over another connection. So the server has accepted the earlier connection by now.
    assert_eq!(Http::new().get(&format!("{}/v1", server.public())).await.status, 200);
    server.terminate();
    logged(&server, "draining", 1).await;
    sleep(Duration::from_secs(2)).await;
    early.write_all(b"GET /v1 HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, early.read_to_string(&mut answer)).await.expect("an end in time").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("connection: close"), "{answer}");
    assert!(server.ended().await.success());
}

#[apply(fact)]
async fn a_request_that_is_being_read_when_a_drain_begins_is_answered() {
    let stack = Stack::start().await;
    let (key, server) = (stack.key().await, stack.server());
    let mut client = TcpStream::connect(server.public().trim_start_matches("http://")).await.unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: 2\r\nExpect: 100-continue\r\n\r\n",
        key.secret
    );
    client.write_all(head.as_bytes()).await.unwrap();
    let mut read = [0; 25];
    timeout(PATIENCE, client.read_exact(&mut read)).await.expect("the body is awaited").unwrap();
    assert_eq!(&read, b"HTTP/1.1 100 Continue\r\n\r\n");
    server.terminate();
    logged(server, "draining", 1).await;
    // This is longer than idle connections may stay open when a process ends.
    sleep(Duration::from_secs(3)).await;
    client.write_all(b"{}").await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, client.read_to_string(&mut answer)).await.expect("an end in time").unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request"), "{answer}");
    assert!(server.ended().await.success());
    server.restart().await;
}

#[apply(fact)]
async fn a_service_manager_is_told_when_a_process_is_ready_reloads_and_stops() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut message = [0; 64];
        let length = manager.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let env = vec![("NOTIFY_SOCKET", socket.display().to_string())];
    let server = Server::start(&Settings::all_in_one(folder.path(), env)).await;
    assert_eq!(told(), "READY=1");
    server.reload();
    assert_eq!([told(), told()], ["RELOADING=1", "READY=1"]);
    server.terminate();
    assert_eq!(told(), "STOPPING=1");
    assert!(server.ended().await.success());
}
