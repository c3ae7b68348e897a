//! Unauthenticated callers, silent sockets and clients that read nothing must not deny service to others.
//!
//! These are the attacks of `make attack` that are quick. The time limits of connections are one second.

use std::{
    fs::{self, OpenOptions},
    process::Command,
    time::{Duration, Instant},
};

use bench::attack::{
    bodies::{Body, StalledBodies},
    events::{bound_memory, change_without_end, long_names},
    filling::owner_of,
    interim::{EndlessHeads, Flooded},
    pages::{leave_pages, slowest_look},
    silent::{Silence, address, flood, time_to_close},
    unauthenticated::{Frames, Framing, Stalling, connect_from, invented_key},
    unread::{leave_answers, open_streams},
};
use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::http2::{Builder, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use shared::key::Class;
use tests::{
    harness::{
        Browser, Deployment, Form, Http, MAX, Options, PATIENCE, SERVER_PATIENCE, Server, Settings, Stack,
        raw, usd,
    },
    upstream::Script,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant as Deadline, sleep, timeout},
};

/// Sets all time limits of a connection to one second.
fn impatient() -> Vec<(&'static str, String)> {
    ["FAREGATE_HEAD_SECONDS", "FAREGATE_IDLE_SECONDS", "FAREGATE_UNREAD_SECONDS", "FAREGATE_PING_SECONDS"]
        .map(|setting| (setting, "1".to_owned()))
        .to_vec()
}

async fn stack(env: Vec<(&'static str, String)>) -> Stack {
    Stack::with(Options { env, ..Options::default() }).await
}

#[apply(fact)]
async fn silent_sockets_of_every_kind_are_closed_on_every_port() {
    let stack = stack(impatient()).await;
    let ports = ["public", "admin", "key-http", "key-grpc"];
    let tried = ports.into_iter().flat_map(|port| Silence::ALL.map(|silence| (port, silence)));
    let closed = join_all(tried.map(|(port, silence)| {
        let address = address(stack.server().address(port));
        // Clients that never read get answers until all buffers are full. On a busy machine, this takes a while.
        async move { (port, silence, time_to_close(address, silence, 4 * PATIENCE).await) }
    }));
    for (port, silence, closed) in closed.await {
        assert!(closed.is_some(), "still open on {port}: {silence:?}");
    }
}

#[apply(fact)]
async fn connections_that_are_quiet_but_alive_stay() {
    let deployment = Deployment::services(1, 1, Form::Alone);
    let stack = Stack::with(Options { deployment, env: impatient(), ..Options::default() }).await;
    let key = stack.key().await;
    // A stream has a token every two seconds, first over HTTP/1 and then over HTTP/2. Meanwhile, the session between
    // the services has little traffic.
    let slow = stack.call(&key, Script::tokens(12, 3).pace(2_000));
    slow.stream().await.rest().await.assert_done();
    let mut over_http2 = stack;
    over_http2.http = Http::http2();
    let slow = over_http2.call(&key, Script::tokens(12, 3).pace(2_000));
    slow.stream().await.rest().await.assert_done();
    let log = over_http2.server().log();
    assert!(!log.contains("WARN"), "no session was cut:\n{log}");
}

#[apply(fact)]
async fn a_flood_of_silent_sockets_refuses_no_one() {
    let stack = stack(vec![("FAREGATE_MAX_CONNECTIONS", "100".to_owned())]).await;
    let key = stack.key().await;
    stack.call(&key, Script::tokens(12, 5)).send().await;
    let sockets = flood(address(stack.server().public()), 1_000).await;
    let began = Instant::now();
    for _ in 0..5 {
        assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200, "on a known connection");
        let answer = Http::new().send_as(&key.secret, Method::GET, &stack.url("/v1/models"), None).await;
        assert_eq!(answer.status, 200, "on a new connection");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    drop(sockets);
}

#[apply(fact)]
async fn unauthenticated_clients_that_take_all_connections_leave_one_for_a_caller_that_hesitates() {
    let stack = stack(vec![("FAREGATE_MAX_CONNECTIONS", "100".to_owned())]).await;
    let key = stack.key().await;
    let public = address(stack.server().public());
    // Each of these connections carries a request that stalls. So only the caller's connection is idle.
    let stalling = Stalling::from_addresses(public, 3, 40).await;
    for _ in 0..5 {
        let mut caller = connect_from([127, 0, 0, 9].into(), public).await.unwrap();
        let more = flood(public, 100).await;
        sleep(Duration::from_millis(300)).await;
        let request = format!(
            "GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {}\r\n\r\n",
            key.secret
        );
        caller.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        caller.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        drop(more);
    }
    drop(stalling);
}

#[apply(fact)]
async fn a_customer_that_reads_nothing_takes_its_share_and_loses_it_in_time() {
    let env =
        vec![("FAREGATE_MAX_IN_FLIGHT", "8".to_owned()), ("FAREGATE_CLIENT_STALL_SECONDS", "2".to_owned())];
    let stack = stack(env).await;
    stack.others_spend();
    let greedy = stack.key().await;
    let other = stack.open_account("other", usd("1"));
    let other = stack.key_of(&other, json!({})).await;
    let unread = open_streams(stack.server().public(), &greedy.secret, 8).await;
    assert_eq!((unread.begun(), unread.refused()), (6, 2), "all but a quarter");
    stack.call(&greedy, Script::tokens(12, 5)).send().await.assert_error(503, "overloaded");
    assert_eq!(stack.call(&other, Script::tokens(12, 5)).send().await.status, 200);
    let deadline = Instant::now() + PATIENCE;
    while stack.call(&greedy, Script::tokens(12, 5)).send().await.status != 200 {
        assert!(Instant::now() < deadline, "its slots do not come free");
        sleep(Duration::from_millis(100)).await;
    }
}

#[apply(fact)]
async fn bodies_of_unauthenticated_clients_take_little_memory_and_no_slot_of_a_customer() {
    // On a busy machine, it takes a while to open the connections. Meanwhile, the caller's connection is idle.
    let env = [("FAREGATE_MAX_CONNECTIONS", "400"), ("FAREGATE_IDLE_SECONDS", "300")];
    let stack = stack(env.map(|(setting, value)| (setting, value.to_owned())).to_vec()).await;
    let key = stack.key().await;
    stack.call(&key, Script::tokens(12, 5)).send().await;
    let before = stack.server().peak_memory();
    for body in Body::ALL {
        let stalled = StalledBodies::open(address(stack.server().public()), 100, 20, body).await;
        for _ in 0..5 {
            assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
            assert_eq!(stack.manage(Method::GET, "?limit=1", None).await.status, 200);
            sleep(Duration::from_millis(200)).await;
        }
        drop(stalled);
    }
    let grown = stack.server().peak_memory().saturating_sub(before);
    // The attack sent 390 MiB.
    assert!(grown < 110 << 20, "{} MiB", grown >> 20);
}

#[apply(fact)]
async fn answers_that_unauthenticated_clients_leave_unread_take_little_memory() {
    let stack = stack(vec![("FAREGATE_MAX_CONNECTIONS", "200".to_owned())]).await;
    let key = stack.key().await;
    stack.call(&key, Script::tokens(12, 5)).send().await;
    let before = stack.server().peak_memory();
    let unread = leave_answers(stack.server().public(), 40, 100).await;
    for _ in 0..3 {
        assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200, "on a known connection");
        let answer = Http::new().send_as(&key.secret, Method::GET, &stack.url("/v1/models"), None).await;
        assert_eq!(answer.status, 200, "on a new connection");
    }
    assert!(unread.iter().any(|connection| connection.begun() == 100));
    let grown = stack.server().peak_memory().saturating_sub(before);
    // There are 4,000 answers of 46 KB each. The limit on unauthenticated clients admits a third of them.
    assert!(grown < 60 << 20, "{} MiB", grown >> 20);
}

#[apply(fact)]
async fn pages_that_an_unauthenticated_client_leaves_unread_close_the_dashboard_for_no_one() {
    let stack = stack(Vec::new()).await;
    assert!(slowest_look(&stack, 2).await.is_some());
    let before = stack.server().peak_memory();
    let left = leave_pages(&stack).await;
    for from in [2, 1] {
        let slowest = slowest_look(&stack, from).await;
        assert!(slowest.is_some_and(|slowest| slowest < Duration::from_secs(2)), "{from}: {slowest:?}");
    }
    assert!(left.iter().any(|connection| connection.begun() > 0));
    let grown = stack.server().peak_memory().saturating_sub(before);
    assert!(grown < 32 << 20, "{} MiB", grown >> 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_without_a_pause_keep_no_one_waiting() {
    let stack = stack(vec![("FAREGATE_WORKERS", "1".to_owned())]).await;
    let key = stack.key().await;
    for frames in Frames::ALL {
        let sending = Framing::begin(address(stack.server().public()), frames, 8);
        sleep(Duration::from_millis(300)).await;
        let before = sending.taken();
        for _ in 0..11 {
            assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
        }
        // Depending on the machine, 12 to 33 MB of frames are read meanwhile. If a read of any size counted as one step
        // of its task, 50 to 60 MB would be read.
        let meanwhile = sending.taken() - before;
        assert!(
            meanwhile < 42_000_000,
            "{frames:?}: {meanwhile} bytes of frames were read beside eleven chats"
        );
        drop(sending);
    }
}

#[apply(fact)]
async fn interim_heads_without_end_end_their_connection_and_keep_no_one_waiting() {
    for flooded in Flooded::ALL {
        let heads = EndlessHeads::start();
        let stack = flooded.stack(&heads).await;
        let key = stack.key().await;
        let until = Deadline::now() + Duration::from_secs(4);
        let chats = async {
            let mut longest = Duration::ZERO;
            while Deadline::now() < until {
                let began = Instant::now();
                assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
                longest = longest.max(began.elapsed());
            }
            longest
        };
        let (longest, ()) = tokio::join!(chats, flooded.provoke(&stack, &key, &heads, until));
        assert!(longest < Duration::from_secs(3), "{flooded:?}: {longest:?}");
        assert!(heads.flooded() > 0, "{flooded:?}");
        if flooded == Flooded::Upstream {
            let began = Instant::now();
            let failed = stack.call(&key, Script::tokens(12, 5)).with("model", MAX).send().await;
            assert!(failed.status >= 500 && began.elapsed() < Duration::from_secs(5), "{failed}");
        }
    }
}

/// An export whose client has read only one byte, and its status.
struct UnreadExport {
    status: StatusCode,
    _unread: (Response<Incoming>, SendRequest<Full<Bytes>>),
}

impl UnreadExport {
    /// Requests the journal of the browser's account. The client seems to be in this network.
    async fn ask(stack: &Stack, browser: &Browser, network: &str) -> Self {
        let stream = TcpStream::connect(address(stack.server().public())).await.unwrap();
        let mut client = Builder::new(TokioExecutor::new());
        let connecting = client.initial_stream_window_size(1).handshake(TokioIo::new(stream));
        let (mut sender, connection) = connecting.await.unwrap();
        tokio::spawn(connection);
        let cookies: Vec<_> = browser.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = Request::get("http://x/dashboard/activity.csv")
            .header(header::COOKIE, cookies.join("; "))
            .header("x-forwarded-for", network)
            .body(Full::default());
        let response = sender.send_request(request.unwrap()).await.unwrap();
        assert!(!response.headers().contains_key("x-account"), "{:?}", response.headers());
        Self { status: response.status(), _unread: (response, sender) }
    }
}

#[apply(fact)]
async fn exports_that_one_network_leaves_unread_close_those_of_no_one() {
    let stack = stack(vec![("FAREGATE_TRUST_PROXY", "true".to_owned())]).await;
    let accounts =
        [stack.account.clone(), stack.open_account("one", usd("1")), stack.open_account("two", usd("1"))];
    let mut owners = Vec::new();
    for account in &accounts {
        owners.push(owner_of(&stack, account).await);
        // The journal consists of several pieces, because HTTP/2 buffers two pieces in addition to the client's window.
        let key = stack.key_of(account, json!({})).await;
        for _ in 0..5 {
            join_all((0..20).map(|_| stack.call(&key, Script::tokens(12, 5)).send())).await;
        }
    }
    let mut unread = Vec::new();
    for (owner, network, expected) in [
        (0, "192.0.2.1", 200),
        (1, "192.0.2.1", 200),
        (2, "192.0.2.1", 503),
        (2, "192.0.2.2", 200),
        (0, "192.0.2.3", 200),
    ] {
        let export = UnreadExport::ask(&stack, &owners[owner], network).await;
        assert_eq!(export.status, expected, "{owner} from {network}");
        unread.push(export);
    }
    let third = UnreadExport::ask(&stack, &owners[0], "192.0.2.4").await;
    assert_ne!(third.status, 200, "an account has two, from however many networks");
}

#[apply(fact)]
async fn management_is_authenticated_before_its_body_has_come() {
    let stack = stack(Vec::new()).await;
    let invented = invented_key(Class::Management, 1);
    for (method, path, authorization, expected) in [
        ("POST", "keys", String::new(), "missing_api_key"),
        ("POST", "keys", format!("authorization: Bearer {invented}\r\n"), "invalid_management_key"),
        ("POST", "nothing", String::new(), "unknown_url"),
        ("PUT", "keys", String::new(), "method_not_allowed"),
    ] {
        let head = format!(
            "{method} /v1/management/{path} HTTP/1.1\r\nhost: x\r\n{authorization}content-length: 60000\r\n\r\n{{"
        );
        let mut stream = TcpStream::connect(address(stack.server().public())).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = vec![0; 4096];
        let read = timeout(Duration::from_secs(8), stream.read(&mut answer)).await;
        let read = read.unwrap_or_else(|_| panic!("{method} {path} waits for its body")).unwrap();
        let answer = String::from_utf8_lossy(&answer[..read]);
        assert!(answer.contains(expected), "{method} {path}: {answer}");
    }
}

#[apply(fact)]
async fn a_head_has_a_bound() {
    let stack = stack(Vec::new()).await;
    let request = |bytes: usize| {
        let filler = "x".repeat(bytes);
        format!("GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-filler: {filler}\r\n\r\n")
    };
    assert!(raw(stack.server().public(), &request(48 << 10)).await.contains(" 200 "));
    let mut stream = TcpStream::connect(address(stack.server().public())).await.unwrap();
    // The server may have closed the connection already.
    let _ = stream.write_all(request(200 << 10).as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(!answer.contains(" 200 "), "{answer}");
}

#[apply(fact)]
async fn limits_are_raised_and_logged_at_start_and_what_cannot_work_is_refused() {
    let stack = stack(vec![("FAREGATE_MEMORY_MIB", "512".to_owned())]).await;
    let log = stack.server().log();
    let first: Vec<&str> = log.lines().take(2).collect();
    assert!(first[0].contains("limits of the process") && first[0].contains("memory_mib=512"), "{log}");
    assert!(first[1].contains("prompts_mib=256"), "{log}");
    let limits = fs::read_to_string(format!("/proc/{}/limits", stack.server().pid())).unwrap();
    let limit = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(limit("Max core file size")[..2], ["0", "0"]);
    let files = limit("Max open files");
    assert_eq!(files[0], files[1], "the soft limit is the hard one");
    for (setting, value) in [
        ("FAREGATE_MAX_CONNECTIONS", "1000000"),
        ("FAREGATE_MAX_PROMPTS_MIB", "1048576"),
        ("FAREGATE_MAX_CONNECTIONS", "0"),
        ("FAREGATE_IDLE_SECONDS", "0"),
    ] {
        let data = tempfile::TempDir::new().unwrap();
        let log =
            Server::refuses(&Settings::all_in_one(data.path(), vec![(setting, value.to_owned())])).await;
        assert!(
            log.to_uppercase().replace('-', "_").contains(setting.trim_start_matches("FAREGATE_")),
            "{log}"
        );
    }
}

#[apply(fact)]
async fn requests_that_no_scraper_looks_at_are_folded_into_buckets() {
    let stack = stack(Vec::new()).await;
    let key = stack.key().await;
    stack.call(&key, Script::tokens(12, 5)).send().await;
    let scraped = Http::new().get(&format!("{}/metrics", stack.server().admin())).await;
    let durations = scraped.text().lines().filter(|line| line.starts_with("gen_ai_server_")).count();
    assert!(durations > 0 && !scraped.text().contains("quantile="), "{}", scraped.text());
    let models: Value = stack.get(&key, "/v1/models").await.json();
    assert_eq!(models["object"], "list");
}

#[apply(fact)]
async fn a_log_that_nobody_reads_stops_no_request_and_lines_that_it_lacks_are_counted() {
    let stack = stack(vec![("FAREGATE_LOG", "trace".to_owned())]).await;
    let key = stack.key().await;
    stack.server().kill();
    let log = stack.server().settings().data.join("stderr.txt");
    fs::remove_file(&log).unwrap();
    assert!(Command::new("mkfifo").arg(&log).status().unwrap().success());
    // The pipe is open, but nobody reads from it.
    let pipe = OpenOptions::new().read(true).write(true).open(&log).unwrap();
    stack.server().restart().await;
    let metrics = format!("{}/metrics", stack.server().admin());
    let deadline = Instant::now() + PATIENCE;
    while stack.http.get(&metrics).await.text().contains("\nlog_lines_dropped_total 0\n") {
        assert!(Instant::now() < deadline, "no line was dropped");
        let requests = (0..100).map(|_| stack.call(&key, Script::tokens(12, 5)).send());
        assert!(join_all(requests).await.iter().all(|answer| answer.status == 200));
    }
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
    stack.server().terminate();
    assert!(stack.server().ended().await.success(), "it does not wait for its log");
    drop(pipe);
    fs::remove_file(&log).unwrap();
    stack.server().restart().await;
}

#[apply(fact)]
async fn an_account_that_changes_its_keys_without_end_fills_no_redis_and_others_chat_on() {
    let stack =
        Stack::with(Options { deployment: Deployment::services(1, 1, Form::Alone), ..Options::default() })
            .await;
    stack.others_spend();
    let greedy = stack.open_account("greedy", usd("1"));
    let key = stack.key_of(&greedy, json!({"limit": 1_000})).await;
    let other = stack.key().await;
    bound_memory(&stack, 6 << 20);
    let parties = (&greedy, &key, &other);
    // The store must be nearly full first, which takes many seconds.
    let deadline = Instant::now() + SERVER_PATIENCE;
    loop {
        let long = change_without_end(&stack, parties, Duration::from_secs(1), long_names).await;
        assert!(long.other == 0 && long.slowest_chat < PATIENCE, "{long:?}");
        if long.full > 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{long:?}");
    }
    let lower = |number: u64| json!({"limit": 999 - number % 2});
    let lowered = change_without_end(&stack, parties, Duration::from_secs(3), lower).await;
    assert!(lowered.done > 0 && lowered.slowest_chat < PATIENCE, "{lowered:?}");
    assert!(lowered.full > 0 && lowered.other == 0, "a bound that is raised again is refused: {lowered:?}");
}
