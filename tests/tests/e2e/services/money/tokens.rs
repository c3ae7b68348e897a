//! The internal token is replaced while both services run, and no request fails.

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use tests::{
    harness::{Deployment, Form, LOOK_EVERY, Options, PATIENCE, Server, Stack},
    upstream::Script,
};
use tokio::time::sleep;

const OLD: &str = "between-the-services";
const NEW: &str = "a-newer-one-between-them";

/// Number of clients that send one request after the other.
const CLIENTS: usize = 4;

#[apply(fact)]
async fn a_rotation_of_the_internal_token_fails_no_request_and_ends_the_old_one() {
    let files = tempfile::TempDir::new().unwrap();
    let file = |name: &str| files.path().join(name).display().to_string();
    let write = |name: &str, token: &str| fs::write(file(name), token).unwrap();
    write("of-key-services", OLD);
    write("of-gateways", OLD);
    write("previous", "");
    // The harness passes the token itself to every process; the files override it.
    let deployment = Deployment::services(2, 2, Form::Alone);
    let mut stack = Stack::with(Options { deployment, ..Options::default() }).await;
    for (servers, variables) in [
        (
            &mut stack.key_services,
            &[
                ("FAREGATE_INTERNAL_TOKEN_FILE", "of-key-services"),
                ("FAREGATE_PREVIOUS_INTERNAL_TOKEN_FILE", "previous"),
            ][..],
        ),
        (&mut stack.gateways, &[("FAREGATE_INTERNAL_TOKEN_FILE", "of-gateways")][..]),
    ] {
        for server in servers {
            let env = variables.iter().map(|(variable, name)| (*variable, file(name)));
            server.restart_with(env.collect(), &["FAREGATE_INTERNAL_TOKEN"]).await;
        }
    }
    let key = stack.key().await;
    let (stop, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let client = async || {
        while !stop.load(Ordering::Relaxed) {
            let answer = stack.call(&key, Script::tokens(12, 5)).send().await;
            assert_eq!(answer.status, 200, "{answer}");
            let listed = stack.get(&key, "/v1/models").await;
            assert_eq!(listed.status, 200, "{listed}");
            // This request is forwarded over HTTP, with the token in a header.
            stack.show(&key).await;
            served.fetch_add(1, Ordering::Relaxed);
        }
    };
    let rotation = async {
        sleep(Duration::from_millis(300)).await;
        write("previous", OLD);
        write("of-key-services", NEW);
        reload_all(&stack, &stack.key_services).await;
        write("of-gateways", NEW);
        reload_all(&stack, &stack.gateways).await;
        write("previous", "");
        reload_all(&stack, &stack.key_services).await;
        // New sessions present the new token.
        for key_service in &stack.key_services {
            key_service.kill();
            key_service.restart().await;
            sleep(Duration::from_millis(500)).await;
        }
        stop.store(true, Ordering::Relaxed);
    };
    tokio::join!(join_all((0..CLIENTS).map(|_| client())), rotation);
    assert!(served.into_inner() > CLIENTS, "requests were served meanwhile");

    let stranger = stack.another_gateway(vec![("FAREGATE_INTERNAL_TOKEN_FILE", file("stranger"))]);
    write("stranger", OLD);
    let stranger = stranger.await;
    let answer = stack.call_at(&stranger, &key, Script::tokens(12, 5)).send().await;
    answer.assert_error(503, "service_unavailable");
}

/// Sends SIGHUP to all servers, and waits until each has read its files.
pub(crate) async fn reload_all(stack: &Stack, servers: &[Server]) {
    for server in servers {
        let done = async || {
            let metrics = stack.http.get(&format!("{}/metrics", server.admin())).await;
            let line =
                metrics.text().lines().find(|line| line.contains("faregate_reloads_total{result=\"done\"}"));
            line.unwrap().rsplit(' ').next().unwrap().parse::<u64>().unwrap()
        };
        let before = done().await;
        server.reload();
        let deadline = Instant::now() + PATIENCE;
        while done().await == before {
            assert!(Instant::now() < deadline, "{}", server.last_words());
            sleep(LOOK_EVERY).await;
        }
    }
}
