//! Alerts of a running installation, by mail and chat.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tests::{
    harness::{Options, Receiver, Server, Stack, until},
    upstream::Script,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

/// A mail server that accepts every mail and keeps it, or says nothing at all.
struct Mailbox {
    address: String,
    mails: Arc<Mutex<Vec<String>>>,
    /// Numbers of connections that clients have opened and ended.
    connections: Arc<Connections>,
}

#[derive(Default)]
struct Connections {
    opened: AtomicUsize,
    ended: AtomicUsize,
}

impl Mailbox {
    async fn start(is_silent: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mails = Arc::<Mutex<Vec<String>>>::default();
        let connections = Arc::<Connections>::default();
        let (kept, counts) = (Arc::clone(&mails), Arc::clone(&connections));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (kept, counts) = (Arc::clone(&kept), Arc::clone(&counts));
                counts.opened.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let _ = if is_silent {
                        // A client says nothing before the server does, so this ends when the client leaves.
                        stream.read_u8().await.map(drop)
                    } else {
                        accept(stream, &kept).await
                    };
                    counts.ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, mails, connections }
    }

    fn env(&self) -> Vec<(&'static str, String)> {
        vec![
            ("FAREGATE_SMTP_URL", format!("smtp://faregate:mail-secret@{}", self.address)),
            ("FAREGATE_SMTP_FROM", "Faregate <faregate@example.com>".to_owned()),
        ]
    }
}

async fn accept(stream: TcpStream, kept: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    writer.write_all(b"220 mail.example ESMTP\r\n").await?;
    while let Some(line) = lines.next_line().await? {
        let answer: &[u8] = match line.split([' ', ':']).next().unwrap_or_default() {
            "EHLO" => b"250-mail.example\r\n250-8BITMIME\r\n250 AUTH PLAIN\r\n",
            "AUTH" => b"235 welcome\r\n",
            "DATA" => {
                writer.write_all(b"354 go on\r\n").await?;
                let mut mail = String::new();
                while let Some(line) = lines.next_line().await?.filter(|line| line != ".") {
                    mail.push_str(&line);
                    mail.push('\n');
                }
                kept.lock().unwrap().push(mail);
                b"250 OK\r\n"
            }
            _ => b"250 OK\r\n",
        };
        writer.write_all(answer).await?;
    }
    Ok(())
}

async fn alert(stack: &Stack, body: Value) -> Value {
    let url = stack.url("/v1/management/alerts");
    let answer = stack.http.send_as(&stack.account.management_key, Method::POST, &url, Some(body)).await;
    assert_eq!(answer.status, 201, "{answer}");
    answer.json()
}

#[apply(fact)]
async fn a_key_without_budget_is_reported_once_by_mail_slack_and_teams_and_no_address_is_shown() {
    let mailbox = Mailbox::start(false).await;
    let stack = Stack::with(Options { env: mailbox.env(), ..Options::default() }).await;
    let of_slack = Receiver::start(|_| 200, Duration::ZERO).await;
    let teams = Receiver::start(|_| 202, Duration::ZERO).await;
    let mut alerts = Vec::new();
    for (channel, to) in
        [("email", "ops@example.com".to_owned()), ("slack", of_slack.url()), ("teams", teams.url())]
    {
        let body = json!({"label": "Budgets", "rule": "refused", "channel": channel, "to": to});
        alerts.push(alert(&stack, body).await);
    }
    assert_eq!(alerts[0]["to"], "ops@example.com");
    let shown = alerts[1]["to"].as_str().unwrap();
    assert!(shown.starts_with("http://127.0.0.1:") && shown.ends_with("/…"), "{shown}");
    let key = stack.key_with(json!({"label": "agent", "limit": 0.000_000_1})).await;
    for _ in 0..20 {
        let refused = stack.call(&key, Script::tokens(12, 5)).send().await;
        refused.assert_error(402, "key_limit_reached");
    }
    until("all arrive", async || {
        let counts = [of_slack.received().len(), teams.received().len(), mailbox.mails.lock().unwrap().len()];
        counts.iter().all(|count| *count >= 1)
    })
    .await;
    // Two more looks at the events report nothing.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mails = mailbox.mails.lock().unwrap().clone();
    assert_eq!((mails.len(), of_slack.received().len(), teams.received().len()), (1, 1, 1));
    assert!(mails[0].contains("Subject: Budgets: the API key agent is refused"), "{}", mails[0]);
    let text = of_slack.received()[0].event()["text"].as_str().unwrap().to_owned();
    assert!(text.starts_with("*Budgets: the API key agent is refused"), "{text}");
    assert_eq!(teams.received()[0].event()["attachments"][0]["content"]["type"], "AdaptiveCard");
    let id = alerts[1]["id"].as_str().unwrap();
    let url = stack.url(&format!("/v1/management/alerts/{id}/messages"));
    let messages = stack.http.send_as(&stack.account.management_key, Method::GET, &url, None).await;
    assert_eq!(messages.json()["data"][0]["status"], 200, "{messages}");
    let stored = stack.cli(&["store", "show", "--account", &stack.account.name, "--id", id]);
    let logs: String = stack.gateways.iter().chain(&stack.key_services).map(Server::log).collect();
    for (what, text) in [("logs", &logs), ("store", &stored)] {
        for secret in ["/hook", "mail-secret", &key.secret] {
            assert!(!text.contains(secret), "{secret} in the {what}: {text}");
        }
    }
    assert!(stored.contains("\"slack\"") && stored.contains("hidden"), "{stored}");
}

#[apply(fact)]
async fn a_mail_server_that_says_nothing_delays_no_request() {
    let mailbox = Mailbox::start(true).await;
    let stack = Stack::with(Options { env: mailbox.env(), ..Options::default() }).await;
    for _ in 0..5 {
        alert(&stack, json!({"rule": "refused", "channel": "email", "to": "ops@example.com"})).await;
    }
    let poor = stack.key_with(json!({"limit": 0.000_000_1})).await;
    stack.call(&poor, Script::tokens(12, 5)).send().await.assert_error(402, "key_limit_reached");
    let key = stack.key().await;
    let Connections { opened, ended } = &*mailbox.connections;
    until("an attempt hangs", async || opened.load(Ordering::SeqCst) > 0).await;
    for _ in 0..10 {
        assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
        assert_eq!(stack.manage(Method::GET, "", None).await.status, 200);
    }
    // An attempt hangs for ten seconds.
    assert_eq!(ended.load(Ordering::SeqCst), 0, "requests were answered during the attempts");
}

#[apply(fact)]
async fn without_a_mail_server_no_alert_is_sent_by_mail_and_an_address_must_not_lead_inside() {
    let stack = Stack::start().await;
    let url = stack.url("/v1/management/alerts");
    for (body, param) in [
        (json!({"rule": "refused", "channel": "email", "to": "ops@example.com"}), "channel"),
        (json!({"rule": "refused", "channel": "slack", "to": "https://10.0.0.1/x"}), "to"),
        (json!({"rule": "refused", "channel": "slack"}), "to"),
        (json!({"rule": "refused", "channel": "webhook", "to": "x"}), "to"),
        (json!({"rule": "limit_share", "channel": "webhook", "threshold": 81}), "threshold"),
        (json!({"rule": "refused", "channel": "webhook", "threshold": 80}), "threshold"),
        (json!({"rule": "credit_days", "channel": "webhook", "about": stack.key().await.id}), "about"),
        (json!({"rule": "refused", "channel": "webhook", "about": "grp_1"}), "about"),
        (json!({"rule": "refusal", "channel": "webhook"}), "rule"),
    ] {
        let body = Some(body);
        let refused = stack.http.send_as(&stack.account.management_key, Method::POST, &url, body).await;
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(param)), "{refused}");
    }
}
