//! Payments and refunds over HTTP. Each counts once although processes are killed, and no refund takes money that is
//! spent or held.

use std::time::Duration;

use futures_util::future::{join, join_all};
use http::{Method, Request, header};
use http_body_util::Full;
use serde_json::{Value, json};
use shared::money::NanoUsd;
use tests::{
    harness::{Answer, Deployment, Form, Options, Server, Stack, nanos, usd},
    upstream::Script,
};
use tokio::time::sleep;

use crate::money::budgets::manage;

const ACCOUNTS: &str = "/v1/operator/accounts";
/// Number of equal payments that are sent at the same time.
const AT_ONCE: usize = 20;
/// Number of different payments, each sent twice, while processes are killed.
const PAYMENTS: usize = 60;
const KILLS: usize = 6;
/// Number of requests that are sent at the same time as a refund.
const REQUESTS: usize = 40;

/// Creates an operator key that may add payments, refund them and open accounts.
pub(crate) fn operator_key(stack: &Stack) -> String {
    let scopes = ["--scope", "credit", "--scope", "accounts"];
    let create = ["operator-keys", "create", "--name", "billing", "--max-payment", "500"];
    stack.cli(&[&create[..], &scopes].concat()).trim().to_owned()
}

/// Returns the processes that serve the operator API.
fn services(stack: &Stack) -> &[Server] {
    if stack.key_services.is_empty() { &stack.gateways } else { &stack.key_services }
}

/// Sends a payment or a refund to this process. Returns `None` if no answer came.
async fn send(stack: &Stack, to: &Server, key: &str, path: &str, body: &Value) -> Option<Answer> {
    let request = Request::post(format!("{}{path}", to.address("key-http")))
        .header(header::AUTHORIZATION, format!("Bearer {key}"))
        .header(header::CONTENT_TYPE, "application/json");
    let request = request.body(Full::from(body.to_string())).unwrap();
    Answer::read(stack.http.open(request).await.ok()?).await.ok()
}

/// Sends a request to one process after the other until it is answered with 200 or 201, as a billing system does.
async fn insist(stack: &Stack, first: usize, key: &str, path: &str, body: &Value) -> Value {
    for attempt in 0..200 {
        let services = services(stack);
        let answer = send(stack, &services[(first + attempt) % services.len()], key, path, body).await;
        if let Some(answer) = answer.filter(|answer| matches!(answer.status, 200 | 201)) {
            return answer.json();
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("the payment is never taken: {body}");
}

async fn opened(stack: &Stack, key: &str) -> String {
    let account = insist(stack, 0, key, ACCOUNTS, &json!({"name": "Acme", "external_id": "cus_1"})).await;
    format!("{ACCOUNTS}/{}", account["id"].as_str().unwrap())
}

async fn payments_count_once_through_kills(stack: &Stack) {
    let key = operator_key(stack);
    let account = opened(stack, &key).await;
    let group = json!({"name": "wallet", "limit": 0});
    let group = insist(stack, 0, &key, &format!("{account}/groups"), &group).await["id"].clone();
    let path = format!("{account}/payments");
    let equal = json!({"payment_id": "pay_0", "amount": 7, "group_id": group});
    let answers = join_all((0..AT_ONCE).map(|n| insist(stack, n, &key, &path, &equal))).await;
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    let pay = async {
        // Six payments are sent at a time. Each of them is sent twice, first to a different process.
        for at in (1..=PAYMENTS).step_by(6) {
            let sent = (at..at + 6).flat_map(|n| [(n, 0), (n, 1)]).map(|(n, first)| {
                let body = json!({"payment_id": format!("pay_{n}"), "amount": 1, "group_id": group});
                let (key, path) = (&key, &path);
                async move { insist(stack, first, key, path, &body).await }
            });
            for pair in join_all(sent).await.chunks(2) {
                assert_eq!(pair[0], pair[1]);
            }
        }
    };
    let kill = async {
        for n in 0..KILLS {
            sleep(Duration::from_millis(150)).await;
            let services = services(stack);
            services[n % services.len()].restart().await;
        }
    };
    join(pay, kill).await;
    let shown = stack.http.send_as(&key, Method::GET, &at(stack, &account), None).await.json();
    let expected = json!(7 + PAYMENTS);
    assert_eq!((&shown["credit"], &shown["total_deposited"]), (&expected, &expected), "{shown}");
    let wallet = format!("{account}/groups/{}", group.as_str().unwrap());
    let wallet = stack.http.send_as(&key, Method::GET, &at(stack, &wallet), None).await.json();
    assert_eq!((&wallet["limit"], &wallet["paid"]), (&expected, &expected), "{wallet}");
    let (status, printed, error) = stack.operator().try_cli(&["audit"]);
    assert!(status.success(), "{printed}{error}");
}

/// Returns the URL of a path in the operator API.
fn at(stack: &Stack, path: &str) -> String {
    format!("{}{path}", services(stack)[0].address("key-http"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payments_over_http_count_once_through_kills_over_sqlite() {
    payments_count_once_through_kills(&Stack::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payments_over_http_count_once_through_kills_over_redis() {
    let deployment = Deployment::services(1, 2, Form::Alone);
    payments_count_once_through_kills(&Stack::with(Options { deployment, ..Options::default() }).await).await;
}

#[apply(fact)]
async fn a_refund_that_races_requests_takes_what_they_neither_use_nor_hold() {
    let stack =
        Stack::with(Options { deployment: Deployment::services(1, 2, Form::Alone), ..Options::default() })
            .await;
    let key = operator_key(&stack);
    let accounts = stack.http.send_as(&key, Method::GET, &at(&stack, ACCOUNTS), None).await.json();
    let account = format!("{ACCOUNTS}/{}", accounts["data"][0]["id"].as_str().unwrap());
    let group = manage(&stack, Method::POST, "/groups", Some(json!({"limit": 0}))).await.json();
    let group_path = format!("/groups/{}", group["id"].as_str().unwrap());
    let paid = json!({"payment_id": "pay_1", "amount": 2, "group_id": group["id"]});
    insist(&stack, 0, &key, &format!("{account}/payments"), &paid).await;
    stack.credited(&stack.account, usd("2"));
    let secret = stack.key_with(json!({"group_id": group["id"]})).await;
    let requests = (0..REQUESTS).map(|n| {
        let call = stack.call(&secret, Script::tokens(10, 30));
        async move {
            sleep(Duration::from_millis(7 * n as u64)).await;
            call.send().await
        }
    });
    let refunds = async {
        let mut taken = NanoUsd::ZERO;
        for n in 0..8 {
            sleep(Duration::from_millis(40)).await;
            let body = json!({"payment_id": format!("re_{n}"), "amount": 0.4, "of": "pay_1", "partial": true,
                "group_id": group["id"]});
            let path = format!("{account}/refunds");
            let [refund, again] = [0, 1].map(|first| insist(&stack, first, &key, &path, &body));
            let (refund, again) = join(refund, again).await;
            assert_eq!(refund, again);
            taken = taken.checked_add(nanos(&refund["taken"])).unwrap();
            let shown = manage(&stack, Method::GET, "/credits", None).await.json();
            assert!(nanos(&shown["held"]) <= nanos(&shown["credit"]), "{shown}");
            let shown = manage(&stack, Method::GET, &group_path, None).await.json();
            assert!(nanos(&shown["used"]) <= nanos(&shown["limit"]), "{shown}");
        }
        taken
    };
    let (answers, taken) = join(join_all(requests), refunds).await;
    assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 402 | 429)), "{answers:?}");
    stack.credited(&stack.account, NanoUsd::from_nanos(-taken.nanos()));
    let body = json!({"payment_id": "re_9", "amount": 400, "of": "pay_1", "group_id": group["id"]});
    let too_much = send(&stack, &stack.key_services[0], &key, &format!("{account}/refunds"), &body).await;
    too_much.unwrap().assert_error(409, "credit_too_low");
    let shown = manage(&stack, Method::GET, &group_path, None).await.json();
    assert_eq!(nanos(&shown["limit"]).nanos(), usd("2").nanos() - taken.nanos(), "{shown}");
    let largest = json!({"payment_id": "pay_2", "amount": 100_000});
    let refused = send(&stack, &stack.key_services[1], &key, &format!("{account}/payments"), &largest).await;
    refused.unwrap().assert_error(400, "payment_above_maximum");
}
