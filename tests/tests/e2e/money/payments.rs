//! Payments that a billing system sends with `credits add --payment-id`. Each payment is added once, however often it
//! is sent.

use std::time::Duration;

use http::Method;
use serde_json::Value;
use tests::{
    harness::{Deployment, Form, Options, Stack, usd},
    upstream::Script,
};

use crate::money::budgets::manage;

/// Number of programs that send the same payment at the same time.
const PROGRAMS: usize = 20;
/// Number of attempts that are killed. Each is killed a little later than the attempt before it; the command takes
/// about 30 ms.
const KILLS: u64 = 12;

fn payment<'a>(id: &'a str, amount: &'a str) -> [&'a str; 8] {
    ["credits", "add", "--account", "default", "--amount", amount, "--payment-id", id]
}

/// Returns the id and the amount of each payment about which there is an event. The newest comes first.
async fn told(stack: &Stack) -> Vec<(String, Value)> {
    let events = manage(stack, Method::GET, "/events?type=credit.added", None).await.json();
    let data = events["data"].as_array().unwrap().iter().map(|event| &event["data"]);
    let payments = data.filter(|data| data.get("payment_id").is_some());
    payments.map(|data| (data["payment_id"].as_str().unwrap().to_owned(), data["amount"].clone())).collect()
}

/// Returns the sum of all credit that was ever added to the account.
async fn deposited(stack: &Stack) -> Value {
    manage(stack, Method::GET, "/credits", None).await.json()["total_deposited"].clone()
}

async fn a_payment_is_added_once(stack: &Stack) {
    let before = deposited(stack).await.as_f64().unwrap();
    // The payment is sent twice in a row, and again after a request and after another payment.
    let first = stack.cli(&payment("pay_1", "50"));
    let key = stack.key().await;
    stack.call(&key, Script::tokens(10, 5)).send().await.cost();
    stack.cli(&payment("pay_2", "7"));
    assert_eq!(stack.cli(&payment("pay_1", "50")), first);
    assert!(first.starts_with("added payment pay_1 of 50 USD to default; "), "{first}");
    let (status, printed, error) = stack.operator().try_cli(&payment("pay_1", "51"));
    assert!(!status.success() && printed.is_empty(), "{printed}");
    assert!(error.contains("--payment-id: this id was used before for a payment of 50 USD"), "{error}");

    // The payment is sent by twenty programs at once.
    let programs = (0..PROGRAMS).map(|_| {
        let operator = stack.operator().clone();
        tokio::task::spawn_blocking(move || operator.cli(&payment("pay_3", "20")))
    });
    let mut answers = Vec::new();
    for program in programs.collect::<Vec<_>>() {
        answers.push(program.await.unwrap());
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");

    // The command is killed before, during or after the payment.
    for n in 0..KILLS {
        stack.operator().kill_cli(&payment("pay_4", "3"), Duration::from_millis(5 + 5 * n)).await;
    }
    stack.cli(&payment("pay_4", "3"));

    let [one, two, three, four] = [50, 7, 20, 3].map(Value::from);
    let pairs = [("pay_4", four), ("pay_3", three), ("pay_2", two), ("pay_1", one)];
    assert_eq!(told(stack).await, pairs.map(|(id, amount)| (id.to_owned(), amount)));
    let added = deposited(stack).await.as_f64().unwrap() - before;
    assert!((added - 80.0).abs() < 1e-6, "{added}");
    stack.credited(&stack.account, usd("80"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_is_added_once_over_sqlite() {
    a_payment_is_added_once(&Stack::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_is_added_once_over_redis() {
    let deployment = Deployment::services(1, 2, Form::Alone);
    a_payment_is_added_once(&Stack::with(Options { deployment, ..Options::default() }).await).await;
}

#[apply(fact)]
async fn what_is_no_id_of_a_payment_is_refused_and_named() {
    let stack = Stack::start().await;
    for bad in ["", " pay_1", "pay\t1", &"x".repeat(129)] {
        let (status, _, error) = stack.operator().try_cli(&payment(bad, "5"));
        assert_eq!(status.code(), Some(2), "{error}");
        assert!(error.contains("--payment-id <ID>") && error.contains("1 to 128 characters"), "{error}");
    }
    assert_eq!(told(&stack).await, []);
}
