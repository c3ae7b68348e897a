//! `docs/start/customers/stripe.py` as documented: events that come twice, out of order, forged, late or in another
//! currency leave the exact credit.

use std::process::{Child, Command, Stdio};

use http::{Method, Request};
use http_body_util::Full;
use ring::hmac;
use serde_json::{Value, json};
use shared::clock::{Clock as _, System};
use tests::harness::{Answer, Stack, free_port, until};

use crate::money::wallets::operator_key;

const SECRET: &str = "whsec_test";

/// The running script, killed when dropped.
struct Hook {
    child: Child,
    address: String,
}

impl Drop for Hook {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Hook {
    fn start(stack: &Stack, folder: &tempfile::TempDir) -> Self {
        let port = free_port();
        let script = crate::house::documents::root().join("docs/start/customers/stripe.py");
        let mut command = Command::new("python3");
        command.arg(script).current_dir(folder).stderr(Stdio::null());
        command.env("STRIPE_WEBHOOK_SECRET", SECRET).env("PORT", port.to_string());
        command.env("FAREGATE_OPERATOR_URL", stack.server().address("key-http"));
        command.env("FAREGATE_OPERATOR_KEY", operator_key(stack));
        Self { child: command.spawn().unwrap(), address: format!("http://127.0.0.1:{port}/stripe") }
    }

    /// Sends an event that was signed with this secret this many seconds ago. Returns the status.
    async fn signed(&self, stack: &Stack, event: &Value, secret: &str, age: u64) -> u16 {
        let now = System.now().millis().unsigned_abs() / 1_000;
        let (body, at) = (event.to_string(), now - age);
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let signature = hex::encode(hmac::sign(&key, format!("{at}.{body}").as_bytes()));
        let request =
            Request::post(&self.address).header("stripe-signature", format!("t={at},v1=00,v1={signature}"));
        let response = stack.http.open(request.body(Full::from(body)).unwrap()).await;
        match response {
            Ok(response) => Answer::read(response).await.unwrap().status,
            Err(_) => 0,
        }
    }

    async fn send(&self, stack: &Stack, event: &Value) -> u16 {
        self.signed(stack, event, SECRET, 0).await
    }
}

fn event(kind: &str, object: &Value) -> Value {
    json!({"id": "evt_1", "type": kind, "data": {"object": object}})
}

fn paid(kind: &str, payment: &str, cents: u64, status: &str, currency: &str) -> Value {
    event(
        kind,
        &json!({
            "payment_status": status, "amount_total": cents, "currency": currency, "client_reference_id": "cus 1",
            "payment_intent": payment,
        }),
    )
}

fn refunded(kind: &str, status: &str, cents: u64) -> Value {
    let refund =
        json!({"id": "re_1", "status": status, "amount": cents, "currency": "usd", "payment_intent": "pi_1"});
    event(kind, &refund)
}

fn credit(stack: &Stack) -> Value {
    let (_, accounts, _) = stack.operator().try_cli(&["accounts", "list", "--json"]);
    let accounts: Value = serde_json::from_str(&accounts).unwrap();
    accounts.as_array().unwrap().iter().find(|account| account["name"] == "Acme").unwrap()["credit"].clone()
}

fn account_url(stack: &Stack) -> String {
    format!("{}/v1/operator/accounts/external:cus%201", stack.server().address("key-http"))
}

async fn status(stack: &Stack, key: &str) -> Value {
    stack.http.send_as(key, Method::GET, &account_url(stack), None).await.json()["status"].clone()
}

fn disputed(kind: &str, dispute: &str) -> Value {
    let dispute = json!({"id": dispute, "amount": 500, "currency": "usd", "payment_intent": "pi_2"});
    event(&format!("charge.dispute.funds_{kind}"), &dispute)
}

#[apply(fact)]
async fn stripes_events_leave_the_exact_credit_however_they_arrive() {
    let stack = Stack::start().await;
    let (key, folder) = (operator_key(&stack), tempfile::TempDir::new().unwrap());
    let accounts = format!("{}/v1/operator/accounts", stack.server().address("key-http"));
    let account = json!({"name": "Acme", "external_id": "cus 1"});
    assert_eq!(stack.http.send_as(&key, Method::POST, &accounts, Some(account)).await.status, 201);
    let hook = Hook::start(&stack, &folder);
    let completed = "checkout.session.completed";
    let ignored = event("customer.created", &json!({}));
    until("the script serves", async || hook.send(&stack, &ignored).await == 200).await;

    // The refund is reported before its payment, and again later.
    assert_eq!(hook.send(&stack, &refunded("refund.created", "succeeded", 250)).await, 500);
    let first = paid(completed, "pi_1", 1999, "paid", "usd");
    for _ in 0..2 {
        assert_eq!(hook.send(&stack, &first).await, 200);
        assert_eq!(credit(&stack), json!(19.99));
    }
    assert_eq!(hook.send(&stack, &refunded("refund.created", "pending", 250)).await, 200);
    assert_eq!(credit(&stack), json!(19.99));
    for kind in ["refund.updated", "refund.created"] {
        assert_eq!(hook.send(&stack, &refunded(kind, "succeeded", 250)).await, 200);
        assert_eq!(credit(&stack), json!(17.49));
    }

    // A payment that clears later is reported by two events.
    assert_eq!(hook.send(&stack, &paid(completed, "pi_2", 500, "unpaid", "usd")).await, 200);
    assert_eq!(credit(&stack), json!(17.49));
    for kind in ["checkout.session.async_payment_succeeded", completed] {
        assert_eq!(hook.send(&stack, &paid(kind, "pi_2", 500, "paid", "usd")).await, 200);
    }
    assert_eq!(credit(&stack), json!(22.49));

    // Forged and stale events, and events in another currency, change nothing.
    let more = paid(completed, "pi_3", 100, "paid", "usd");
    assert_eq!(hook.signed(&stack, &more, "whsec_other", 0).await, 400);
    assert_eq!(hook.signed(&stack, &more, SECRET, 400).await, 400);
    assert_eq!(hook.send(&stack, &paid(completed, "pi_3", 100, "paid", "jpy")).await, 500);
    assert_eq!(credit(&stack), json!(22.49));

    // A dispute suspends the account and takes back the payment. Once the dispute is won, the account is active again
    // and has the money.
    for _ in 0..2 {
        assert_eq!(hook.send(&stack, &disputed("withdrawn", "dp_1")).await, 200);
        assert_eq!((credit(&stack), status(&stack, &key).await), (json!(17.49), json!("suspended")));
    }
    for _ in 0..2 {
        assert_eq!(hook.send(&stack, &disputed("reinstated", "dp_1")).await, 200);
        assert_eq!((credit(&stack), status(&stack, &key).await), (json!(22.49), json!("active")));
    }

    // A withdrawal that is reported after its reinstatement, or once more, suspends nothing.
    for (kind, dispute, after) in
        [("withdrawn", "dp_1", 22.49), ("reinstated", "dp_2", 27.49), ("withdrawn", "dp_2", 22.49)]
    {
        assert_eq!(hook.send(&stack, &disputed(kind, dispute)).await, 200);
        assert_eq!((credit(&stack), status(&stack, &key).await), (json!(after), json!("active")));
    }

    // A won dispute does not end a suspension for another reason.
    let suspend = format!("{}/suspend", account_url(&stack));
    let reason = Some(json!({"reason": "Invoice 7 is unpaid."}));
    assert_eq!(stack.http.send_as(&key, Method::POST, &suspend, reason).await.status, 200);
    for (kind, after) in [("withdrawn", 17.49), ("reinstated", 22.49)] {
        assert_eq!(hook.send(&stack, &disputed(kind, "dp_3")).await, 200);
        assert_eq!((credit(&stack), status(&stack, &key).await), (json!(after), json!("suspended")));
    }
    let restore = format!("{}/restore", account_url(&stack));
    assert_eq!(stack.http.send_as(&key, Method::POST, &restore, None).await.status, 200);

    // While Faregate is unavailable, the script refuses the event, so that it is sent again later.
    stack.server().kill();
    assert_eq!(hook.send(&stack, &more).await, 500);
    stack.server().restart().await;
    until("the event is counted", async || hook.send(&stack, &more).await == 200).await;
    assert_eq!(credit(&stack), json!(23.49));
}
