//! Accounts that are suspended, restored and closed, under load and on every replica.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use http::Method;
use serde_json::json;
use tests::{
    harness::{Browser, Deployment, Form, Options, Stack},
    upstream::Script,
};
use tokio::time::sleep;

use crate::dashboard::signed_in;

const CLIENTS: usize = 50;
/// Number of requests that begin after the suspension was answered.
const AFTER: usize = 2_000;
/// Time within which a stream of a suspended account ends.
const CUT: Duration = Duration::from_secs(5);

#[apply(fact)]
async fn no_request_that_begins_after_a_suspension_was_answered_is_accepted_on_any_replica() {
    let deployment = Deployment::services(2, 2, Form::Alone);
    let env = vec![("FAREGATE_PUBLIC_OPERATOR", "all".to_owned())];
    let stack = Stack::with(Options { deployment, env, ..Options::default() }).await;
    let operator = stack.cli(&["operator-keys", "create", "--name", "billing", "--scope", "accounts"]);
    let operator = operator.trim();
    let ports: Vec<String> =
        stack.key_services.iter().map(|server| server.address("key-http").to_owned()).collect();
    let key = stack.key().await;
    let accounts = format!("{}/v1/operator/accounts", ports[0]);
    let listed = stack.http.send_as(operator, Method::GET, &accounts, None).await;
    let account = listed.json()["data"][0]["id"].as_str().unwrap().to_owned();
    let act = async |port: &str, act: &str, body| {
        let url = format!("{port}/v1/operator/accounts/{account}/{act}");
        let answer = stack.http.send_as(operator, Method::POST, &url, body).await;
        assert_eq!(answer.status, 200, "{act}: {answer}");
    };

    let mut streams = Vec::new();
    for gateway in &stack.gateways {
        let mut stream = stack.call_at(gateway, &key, Script::tokens(10, 5_000).pace(20)).stream().await;
        stream.read_tokens(5).await;
        streams.push(stream);
    }
    let (is_suspended, later) = (AtomicBool::new(false), AtomicUsize::new(0));
    let client = async |n: usize| {
        let gateway = &stack.gateways[n % 2];
        let (mut before, mut after) = (Vec::new(), Vec::new());
        while later.load(Ordering::SeqCst) < AFTER {
            let began_after = is_suspended.load(Ordering::SeqCst);
            let answer = stack.call_at(gateway, &key, Script::tokens(3, 1)).send().await;
            if began_after {
                later.fetch_add(1, Ordering::SeqCst);
                let code = if answer.status == 200 { String::new() } else { answer.code() };
                after.push((answer.status, code));
            } else {
                before.push(answer.status);
            }
        }
        (before, after)
    };
    let suspended = async {
        sleep(Duration::from_secs(1)).await;
        act(&ports[0], "suspend", Some(json!({"reason": "unpaid"}))).await;
        is_suspended.store(true, Ordering::SeqCst);
        let answered = Instant::now();
        for stream in streams {
            stream.rest().await.assert_error(401, "account_suspended");
        }
        assert!(answered.elapsed() < CUT, "after {:?}", answered.elapsed());
    };
    let (seen, ()) = tokio::join!(join_all((0..CLIENTS).map(client)), suspended);
    let (before, after): (Vec<_>, Vec<_>) = seen.into_iter().unzip();
    assert!(before.iter().flatten().any(|status| *status == 200), "the clients were served before");
    let after: Vec<_> = after.into_iter().flatten().collect();
    assert!(after.len() >= AFTER);
    let refused = (401, "account_suspended".to_owned());
    let accepted: Vec<_> = after.iter().filter(|seen| **seen != refused).collect();
    assert!(accepted.is_empty(), "{accepted:?}");
    stack.released(Duration::from_secs(5)).await;

    act(&ports[1], "restore", None).await;
    for gateway in &stack.gateways {
        assert_eq!(stack.call_at(gateway, &key, Script::tokens(3, 1)).send().await.status, 200);
    }
}

#[apply(fact)]
async fn members_of_a_suspended_account_see_the_reason_and_change_nothing_and_of_a_closed_one_nothing() {
    let stack = Stack::start().await;
    stack.cli(&["accounts", "create", "--name", "Leaving"]);
    let invite = ["members", "invite", "--account", "Leaving", "--name", "ann"];
    let mut ann = Browser::at(&stack.url(""));
    assert_eq!(ann.sign_in(&stack.cli(&invite)).await.status, 303);
    ann.get("/dashboard/groups").await;
    assert_eq!(ann.post("/dashboard/groups", &[("name", "before")]).await.status, 303);
    let suspend = ["accounts", "suspend", "--account", "Leaving", "--reason", "Invoice 7 is unpaid."];
    for _ in 0..2 {
        assert_eq!(stack.cli(&suspend).trim(), "the account Leaving is suspended");
    }
    let page = ann.get("/dashboard").await;
    assert!(page.status == 200 && page.text().contains("Invoice 7 is unpaid."), "{page}");
    ann.get("/dashboard/groups").await;
    let refused = ann.post("/dashboard/groups", &[("name", "after")]).await;
    assert!(refused.status == 403 && refused.text().contains("This account is suspended"), "{refused}");
    let groups = ann.get("/dashboard/groups").await;
    assert!(groups.text().contains("before") && !groups.text().contains(">after<"), "{groups}");
    let link = stack.cli(&["sign-in-link", "--account", "Leaving", "--name", "ann"]);
    assert_eq!(
        stack.cli(&["accounts", "close", "--account", "Leaving"]).trim(),
        "the account Leaving is closed"
    );
    let signed_out = ann.get("/dashboard").await;
    assert_eq!(signed_out.status, 303, "{signed_out}");
    assert!(signed_out.header("location").starts_with("/dashboard/sign-in"), "{signed_out}");
    let mut again = Browser::at(&stack.url(""));
    let refused = again.sign_in(&link).await;
    assert!(refused.status == 403 && refused.text().contains("This account is closed."), "{refused}");
    let (status, _, stderr) = stack.operator().try_cli(&["accounts", "restore", "--account", "Leaving"]);
    assert!(!status.success() && stderr.contains("The account is closed."), "{stderr}");
    let (status, _, stderr) =
        stack.operator().try_cli(&["credits", "add", "--account", "Leaving", "--amount", "5"]);
    assert!(!status.success() && stderr.contains("the account is closed"), "{stderr}");
    let mut other = signed_in(&stack, &stack.account, "owner").await;
    assert!(!other.get("/dashboard").await.text().contains("suspended"), "another account is not affected");
}
