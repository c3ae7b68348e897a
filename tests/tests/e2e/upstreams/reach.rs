//! Ways to reach upstreams: credentials and headers, a private certificate authority, a proxy.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use http::Method;
use tests::{
    harness::{ApiKey, Door, FLASH, Http, PATIENCE, Stack},
    upstream::Script,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    time::{Duration, sleep, timeout},
};

use crate::operation::{
    certificates::Signed,
    reload::{NOT_RELOADED, RELOADED, logged},
    tls,
};

/// Offers one model at `url`, with these additional lines for its upstream.
async fn offer(stack: &Stack, url: &str, lines: &str, reloads: usize) {
    write_catalogue(stack, url, lines);
    stack.server().reload();
    logged(stack.server(), RELOADED, reloads).await;
}

fn write_catalogue(stack: &Stack, url: &str, lines: &str) {
    let catalogue = format!(
        r#"[service]
name = "Faregate"
provider = "Model"
docs = "https://docs.example.com"

[[model]]
id = "{FLASH}"
owned_by = "model-service"
context_window = 131072
max_output_tokens = 4096

[model.price]
input = "0.10"
cached_input = "0.025"
output = "0.40"

[[model.upstream]]
kind = "openai"
url = "{url}"
model = "{FLASH}"
{lines}
"#
    );
    fs::write(stack.data().join("models.toml"), catalogue).unwrap();
}

async fn status(stack: &Stack, key: &ApiKey) -> u16 {
    stack.call(key, Script::tokens(12, 5)).send().await.status
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

#[apply(fact)]
async fn a_credential_replaced_in_its_file_is_used_after_one_refusal() {
    // The upstream is another Faregate, which refuses keys.
    let (vendor, stack) = (Stack::start().await, Stack::start().await);
    vendor.others_spend();
    stack.others_spend();
    let (first, second, key) = (vendor.key().await, vendor.key().await, stack.key().await);
    let file = stack.data().join("vendor.key");
    write(&file, &format!("  {}\n", first.secret));
    let url = format!("{}/v1", vendor.server().public());
    offer(&stack, &url, &format!("api_key_file = \"{}\"", file.display()), 1).await;
    assert_eq!(status(&stack, &key).await, 200);

    let revoked = vendor.manage(Method::DELETE, &format!("/{}", first.id), None).await;
    assert_eq!(revoked.status, 200, "{revoked}");
    let refused = stack.call(&key, Script::tokens(12, 5)).send().await;
    assert_eq!((refused.status, refused.code().as_str()), (502, "upstream_error"), "{refused}");
    assert!(!refused.text().contains("key"), "nothing of the credential is told: {refused}");
    let log = stack.server().log();
    let line = log.lines().find(|line| line.contains("an upstream refuses its credential")).unwrap();
    assert!(line.contains("vendor.key") && line.contains("status=401"), "{line}");
    let metrics = stack.http.get(&format!("{}/metrics", stack.server().admin())).await;
    let metrics = metrics.text();
    assert!(metrics.contains(r#"gateway_upstream_errors_total{kind="credential"} 1"#), "{metrics}");

    write(&file, &second.secret);
    let answers = futures_util::future::join_all((0..16).map(|_| status(&stack, &key))).await;
    assert_eq!(answers, [200; 16], "no reload was needed");
    fs::remove_file(&file).unwrap();
    assert_eq!(
        status(&stack, &key).await,
        200,
        "the file is read again only where its credential is refused"
    );
}

#[apply(fact)]
async fn headers_and_query_of_the_catalogue_reach_the_upstream() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let door = Door::before(stack.upstream.url().trim_end_matches("/v1")).await;
    let file = stack.data().join("project");
    write(&file, "project-7\n");
    let lines = format!(
        "auth = \"api-key\"\napi_key_env = \"UPSTREAM_KEY\"\n\n[model.upstream.headers]\nx-region = \"eu-2\"\n\
         x-project = {{ file = \"{}\" }}\nx-again = {{ env = \"UPSTREAM_KEY\" }}",
        file.display()
    );
    offer(&stack, &format!("{}/v1?api-version=2026-11-01", door.url()), &lines, 1).await;
    assert_eq!(status(&stack, &key).await, 200);

    let sent = door.exchanges().pop().unwrap();
    assert_eq!(sent.request, "POST /v1/chat/completions?api-version=2026-11-01");
    let header = |name: &str| sent.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let credential = Some(tests::harness::UPSTREAM_KEY.to_owned());
    assert_eq!((header("api-key"), header("x-again")), (credential.clone(), credential));
    assert_eq!(header("x-region").as_deref(), Some("eu-2"));
    assert_eq!(header("x-project").as_deref(), Some("project-7"));
    assert_eq!(header("authorization"), None);

    // If a source has no value, the reload is refused and names it; the previous catalogue stays in use.
    fs::remove_file(&file).unwrap();
    stack.server().reload();
    logged(stack.server(), NOT_RELOADED, 1).await;
    assert!(stack.server().log().contains("x-project"), "the log names the header");
    assert_eq!(status(&stack, &key).await, 200);
}

#[apply(fact)]
async fn an_upstream_with_a_private_authority_is_reached_through_a_proxy() {
    let signed = Signed::new();
    let mut vendor = Stack::with(tls::options(&signed)).await;
    vendor.http = Http::trusting(&signed.text("ca.pem"), false);
    let stack = Stack::start().await;
    vendor.others_spend();
    stack.others_spend();
    let (credential, key) = (vendor.key().await, stack.key().await);
    let file = stack.data().join("vendor.key");
    write(&file, &credential.secret);
    let (url, with_key) =
        (format!("{}/v1", vendor.server().public()), format!("api_key_file = \"{}\"", file.display()));
    offer(&stack, &url, &with_key, 1).await;
    assert_eq!(status(&stack, &key).await, 503, "the authority is not of the web");

    let with_authority = format!("{with_key}\nca_file = \"{}\"", signed.file("ca.pem"));
    offer(&stack, &url, &with_authority, 2).await;
    assert_eq!(status(&stack, &key).await, 200);

    let (proxy, tunnels) = proxy().await;
    offer(&stack, &url, &format!("{with_authority}\nproxy = \"http://me:secret@{proxy}\""), 3).await;
    assert_eq!(status(&stack, &key).await, 200);
    let both = async {
        while tunnels.load(SeqCst) < 2 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(timeout(PATIENCE, both).await.is_ok(), "the request, and the question for the server's window");
    assert!(!stack.server().log().contains("me:secret"), "the proxy's password is not logged");

    write_catalogue(&stack, &url, "ca_file = \"/nowhere/ca.pem\"");
    stack.server().reload();
    logged(stack.server(), NOT_RELOADED, 1).await;
    assert!(stack.server().log().contains("/nowhere/ca.pem"));
}

/// Starts a proxy that accepts CONNECT with a password, and counts its tunnels. It ends with the test's runtime.
async fn proxy() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, tunnels) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = tunnels.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let counted = counted.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap().to_lowercase();
                assert!(head.contains("proxy-authorization: basic bwu6c2vjcmv0"), "{head}");
                let target = head.strip_prefix("connect ").unwrap().split(' ').next().unwrap();
                let mut server = TcpStream::connect(target).await.unwrap();
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                counted.fetch_add(1, SeqCst);
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (address, tunnels)
}
