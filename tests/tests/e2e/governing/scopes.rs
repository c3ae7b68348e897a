//! Management keys with scope, group and expiry, through the public port and over every kind of store.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tests::harness::{Account, Answer, Deployment, Form, LOOK_EVERY, Options, PATIENCE, Stack};
use tokio::time::sleep;

impl Team {
    /// Creates a management key with these flags.
    fn key(stack: &Stack, flags: &[&str]) -> String {
        let create = ["management-keys", "create", "--account", &stack.account.name, "--name", "team"];
        stack.cli(&[&create[..], flags].concat()).trim().to_owned()
    }

    async fn open(stack: &Stack) -> Self {
        let object = async |path: &str, body: Value| {
            let answer = send(stack, &stack.account.management_key, Method::POST, path, Some(body)).await;
            assert_eq!(answer.status, 201, "{answer}");
            answer.json()["id"].as_str().unwrap().to_owned()
        };
        let own = object("/groups", json!({"name": "own"})).await;
        let other = object("/groups", json!({"name": "other"})).await;
        let inside = object("/keys", json!({"group_id": own})).await;
        let outside = object("/keys", json!({"group_id": other})).await;
        Self { own, other, inside, outside }
    }
}

/// Two groups, with a key in each.
struct Team {
    own: String,
    other: String,
    inside: String,
    outside: String,
}

/// Sends a request to this path below `/v1/management`.
async fn send(stack: &Stack, secret: &str, method: Method, path: &str, body: Option<Value>) -> Answer {
    stack.http.send_as(secret, method, &stack.url(&format!("/v1/management{path}")), body).await
}

fn ids(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{answer}");
    let data = answer.json()["data"].clone();
    data.as_array().unwrap().iter().map(|object| object["id"].as_str().unwrap().to_owned()).collect()
}

/// Takes actions with the management keys of one group. For each action, checks the answer to a key that may only read,
/// and to one that may write.
async fn acts(stack: &Stack) {
    let team = Team::open(stack).await;
    let [reader, lead] =
        ["read", "full"].map(|scope| Team::key(stack, &["--scope", scope, "--group", &team.own]));
    let (inside, outside) = (format!("/keys/{}", team.inside), format!("/keys/{}", team.outside));
    let (own, other) = (format!("/groups/{}", team.own), format!("/groups/{}", team.other));
    let label = || Some(json!({"label": "x"}));
    let into = |group: &str| Some(json!({ "group_id": group }));
    let read_only = Err((403, "read_only_key"));
    let beyond = Err((403, "group_key_not_allowed"));
    let unknown = Err((404, "key_not_found"));
    let table = [
        (Method::GET, "/keys".to_owned(), None, Ok(200), Ok(200)),
        (Method::GET, inside.clone(), None, Ok(200), Ok(200)),
        (Method::GET, outside.clone(), None, unknown, unknown),
        (Method::PATCH, inside.clone(), label(), read_only, Ok(200)),
        (Method::PATCH, outside.clone(), label(), read_only, unknown),
        (Method::PATCH, outside.clone(), into(&team.own), read_only, unknown),
        (Method::PATCH, inside.clone(), into(&team.other), read_only, Err((400, "invalid_value"))),
        (Method::PATCH, inside.clone(), Some(json!({"group_id": null})), read_only, beyond),
        (Method::POST, "/keys".to_owned(), label(), read_only, Ok(201)),
        (Method::POST, "/keys".to_owned(), into(&team.other), read_only, Err((400, "invalid_value"))),
        (Method::DELETE, outside.clone(), None, read_only, unknown),
        (Method::GET, "/groups".to_owned(), None, beyond, beyond),
        (Method::POST, "/groups".to_owned(), Some(json!({})), read_only, beyond),
        (Method::GET, own.clone(), None, beyond, beyond),
        (Method::PATCH, own.clone(), Some(json!({"limit": 9})), read_only, beyond),
        (Method::PATCH, other.clone(), Some(json!({"limit": 9})), read_only, beyond),
        (Method::DELETE, own.clone(), None, read_only, beyond),
        (Method::GET, format!("{own}/keys"), None, Ok(200), Ok(200)),
        (
            Method::GET,
            format!("{other}/keys"),
            None,
            Err((404, "group_not_found")),
            Err((404, "group_not_found")),
        ),
        (Method::POST, format!("{other}/revoke_keys"), None, read_only, Err((404, "group_not_found"))),
        (Method::GET, "/credits".to_owned(), None, beyond, beyond),
        (Method::GET, "/usage".to_owned(), None, Ok(200), Ok(200)),
        (Method::GET, "/generations".to_owned(), None, Ok(200), Ok(200)),
        (Method::DELETE, inside.clone(), None, read_only, Ok(200)),
        (Method::POST, format!("{own}/revoke_keys"), None, read_only, Ok(200)),
    ];
    let before = send(stack, &stack.account.management_key, Method::GET, &outside, None).await.json();
    for (method, path, body, of_reader, of_lead) in table {
        for (secret, expected) in [(&reader, of_reader), (&lead, of_lead)] {
            let answer = send(stack, secret, method.clone(), &path, body.clone()).await;
            match expected {
                Ok(status) => assert_eq!(answer.status, status, "{method} {path}: {answer}"),
                Err((status, code)) => {
                    assert_eq!(
                        (answer.status, answer.code().as_str()),
                        (status, code),
                        "{method} {path}: {answer}"
                    );
                }
            }
        }
    }
    let after = send(stack, &stack.account.management_key, Method::GET, &outside, None).await.json();
    assert_eq!(after, before, "the key of another group is untouched");
    for secret in [&reader, &lead] {
        let listed = send(stack, secret, Method::GET, "/keys", None).await;
        let listed = ids(&listed);
        assert!(listed.contains(&team.inside) && !listed.contains(&team.outside), "{listed:?}");
    }
}

#[apply(fact)]
async fn a_management_key_of_a_group_can_see_and_do_nothing_of_another() {
    acts(&Stack::start().await).await;
}

#[apply(fact)]
async fn a_management_key_of_a_group_can_see_and_do_nothing_of_another_over_redis() {
    let deployment = Deployment::services(1, 2, Form::Alone);
    acts(&Stack::with(Options { deployment, ..Options::default() }).await).await;
}

#[apply(fact)]
async fn an_expired_management_key_is_refused_and_the_last_use_of_the_others_is_listed() {
    let stack = Stack::start().await;
    let expired = Team::key(&stack, &["--expires-at", "2020-01-01T00:00:00Z"]);
    let refused = send(&stack, &expired, Method::GET, "/keys", None).await;
    refused.assert_error(401, "key_expired");
    assert!(refused.header("www-authenticate").contains("error=\"invalid_token\""), "{refused}");
    let lent = Team::key(&stack, &["--expires-at", "2999-01-01T00:00:00Z", "--scope", "read"]);
    assert_eq!(send(&stack, &lent, Method::GET, "/keys", None).await.status, 200);
    let used = last_uses(&stack, &stack.account);
    let deadline = Instant::now() + PATIENCE;
    while last_uses(&stack, &stack.account)[2].is_null() {
        assert!(Instant::now() < deadline, "{used:?}");
        sleep(LOOK_EVERY.max(Duration::from_millis(100))).await;
    }
    assert!(last_uses(&stack, &stack.account)[1].is_null(), "an expired key was never used");
}

/// Returns when the account's management keys were last used, except the first run's key.
fn last_uses(stack: &Stack, account: &Account) -> Vec<Value> {
    let listed = stack.cli(&["management-keys", "list", "--account", &account.name, "--json"]);
    let keys: Vec<Value> = serde_json::from_str(&listed).unwrap();
    keys.iter().skip(1).map(|key| key["last_used_at"].clone()).collect()
}
