//! The operator API: where it is served, who may use it, and accounts that are made once.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use tests::harness::{Answer, Browser, Deployment, Door, Form, Options, Server, Stack, until};
use tokio::time::sleep;

use super::{SECOND_FACTOR, newcomer, operator};
use crate::{
    apis::clients::assert_described_by,
    dashboard::{
        second_factor::{code, enrol_at},
        signed_in,
    },
};

const KEYS: &str = "/operator/keys";
const ACCOUNTS: &str = "/v1/operator/accounts";

async fn with(setting: &str) -> Stack {
    Stack::with(Options { env: vec![("FAREGATE_PUBLIC_OPERATOR", setting.to_owned())], ..Options::default() })
        .await
}

fn operator_key(stack: &Stack, flags: &[&str]) -> String {
    let create = ["operator-keys", "create", "--name", "billing"];
    stack.cli(&[&create[..], flags].concat()).trim().to_owned()
}

/// Returns the URL of the key-service's own HTTP port.
fn port_of(server: &Server) -> String {
    server.address("key-http").to_owned()
}

async fn ask(stack: &Stack, key: &str, method: Method, url: &str) -> Answer {
    stack.http.send_as(key, method, url, None).await
}

#[apply(fact)]
async fn by_default_the_public_address_has_no_operator_api_and_the_key_services_port_has_it() {
    let stack = Stack::start().await;
    let key = operator_key(&stack, &["--scope", "read"]);
    let api_key = stack.key().await.secret;
    for path in
        [ACCOUNTS, "/v1/operator/openapi.json", "/v1/operator/x", "/v1/operator/accounts/external:a%2Fb"]
    {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            for key in [key.as_str(), &api_key, &stack.account.management_key, "x"] {
                let answer = ask(&stack, key, method.clone(), &stack.url(path)).await;
                answer.assert_error(404, "unknown_url");
            }
        }
    }
    assert_eq!(ask(&stack, &key, Method::GET, &(port_of(stack.server()) + ACCOUNTS)).await.status, 200);
    assert_eq!(Browser::at(&stack.url("")).get("/operator/sign-in").await.status, 200);
}

#[apply(fact)]
async fn the_public_address_serves_operators_what_the_setting_says() {
    for (setting, pages, api) in [("off", 404, 404), ("all", 200, 200)] {
        let stack = with(setting).await;
        let key = operator_key(&stack, &["--scope", "read"]);
        assert_eq!(ask(&stack, &key, Method::GET, &stack.url(ACCOUNTS)).await.status, api, "{setting}");
        let page = Browser::at(&stack.url("")).get("/operator/sign-in").await;
        assert_eq!(page.status, pages, "{setting}");
        let port = port_of(stack.server());
        assert_eq!(ask(&stack, &key, Method::GET, &(port.clone() + ACCOUNTS)).await.status, 200);
        assert_eq!(Browser::at(&port).get("/operator/sign-in").await.status, 200, "{setting}");
        let described = stack.http.get(&stack.url("/openapi.json")).await;
        assert!(!described.text().contains("/v1/operator"), "the public description has no operator API");
    }
}

/// Also checks which classes of keys are accepted on which paths, over two gateways and two key-services.
#[apply(fact)]
async fn a_rotated_operator_key_works_on_every_replica_until_its_grace_ends_and_a_revoked_one_on_none() {
    let deployment = Deployment::services(2, 2, Form::Alone);
    let env = vec![("FAREGATE_PUBLIC_OPERATOR", "all".to_owned())];
    let stack = Stack::with(Options { deployment, env, ..Options::default() }).await;
    let key = operator_key(&stack, &["--scope", "read"]);
    let everywhere = || {
        let gateways = stack.gateways.iter().map(|server| server.public().to_owned());
        gateways.chain(stack.key_services.iter().map(port_of)).collect::<Vec<_>>()
    };
    let statuses = async |key: &str, path: &str| {
        let mut seen = BTreeSet::new();
        for base in everywhere() {
            let answer = ask(&stack, key, Method::GET, &format!("{base}{path}")).await;
            seen.insert((answer.status, if answer.status == 200 { String::new() } else { answer.code() }));
        }
        seen.into_iter().collect::<Vec<_>>()
    };
    let is = |status, code: &str| vec![(status, code.to_owned())];
    assert_eq!(statuses(&key, ACCOUNTS).await, is(200, ""));
    let chat = stack.http.send_as(&key, Method::GET, &stack.url("/v1/models"), None).await;
    chat.assert_error(403, "operator_key_not_allowed");
    let own = stack.http.send_as(&key, Method::GET, &stack.url("/v1/key"), None).await;
    own.assert_error(403, "operator_key_not_allowed");
    assert_eq!(statuses(&key, "/v1/management/keys").await, is(403, "operator_key_not_allowed"));
    assert_eq!(statuses(&stack.account.management_key, ACCOUNTS).await, is(403, "operator_key_required"));
    assert_eq!(statuses(&stack.key().await.secret, ACCOUNTS).await, is(403, "operator_key_required"));
    assert_eq!(statuses("x", ACCOUNTS).await, is(401, "invalid_operator_key"));
    let listed: Value = serde_json::from_str(&stack.cli(&["operator-keys", "list", "--json"])).unwrap();
    let id = listed[0]["id"].as_str().unwrap();
    let rotated = stack.cli(&["operator-keys", "rotate", "--id", id, "--grace-seconds", "6"]);
    let rotated = rotated.trim();
    assert_eq!(
        (statuses(&key, ACCOUNTS).await, statuses(rotated, ACCOUNTS).await),
        (is(200, ""), is(200, ""))
    );
    until("the grace ends", async || statuses(&key, ACCOUNTS).await == is(401, "key_expired")).await;
    assert_eq!(statuses(rotated, ACCOUNTS).await, is(200, ""));
    let listed: Value = serde_json::from_str(&stack.cli(&["operator-keys", "list", "--json"])).unwrap();
    stack.cli(&["operator-keys", "revoke", "--id", listed[1]["id"].as_str().unwrap()]);
    assert_eq!(statuses(rotated, ACCOUNTS).await, is(401, "invalid_operator_key"));
    for (path, code) in [("/v1/management/keys", "invalid_management_key"), ("/v1/key", "invalid_api_key")] {
        assert_eq!(statuses(rotated, path).await, is(401, code));
    }
    stack
        .http
        .send_as(rotated, Method::GET, &stack.url("/v1/models"), None)
        .await
        .assert_error(401, "invalid_api_key");
}

#[apply(fact)]
async fn a_gateway_passes_on_the_address_that_a_key_with_networks_is_judged_by() {
    let stack = with("all").await;
    let near = operator_key(&stack, &["--scope", "read", "--network", "127.0.0.0/8", "--network", "::1"]);
    let far = operator_key(&stack, &["--scope", "read", "--network", "203.0.113.0/24"]);
    for base in [stack.url(""), port_of(stack.server())] {
        let url = format!("{base}{ACCOUNTS}");
        assert_eq!(ask(&stack, &near, Method::GET, &url).await.status, 200);
        ask(&stack, &far, Method::GET, &url).await.assert_error(403, "operator_network_not_allowed");
        let claimed = Request::get(&url).header("authorization", format!("Bearer {far}"));
        let claimed = claimed.header("x-forwarded-for", "203.0.113.7").body(Full::default()).unwrap();
        stack.http.send(claimed).await.assert_error(403, "operator_network_not_allowed");
    }
}

/// In each of four rounds, fifty requests with the same external id are sent to both key-services, one of which is
/// killed meanwhile.
#[apply(fact)]
async fn an_external_id_makes_one_account_through_kills_of_key_services() {
    let deployment = Deployment::services(1, 2, Form::Alone);
    let stack = Stack::with(Options { deployment, ..Options::default() }).await;
    let key = operator_key(&stack, &["--scope", "accounts"]);
    let ports: Vec<String> = stack.key_services.iter().map(port_of).collect();
    for round in 0..4_u64 {
        let body = json!({"name": format!("Customer {round}"), "external_id": format!("cus_{round}")});
        let post = async |base: &str| {
            let request =
                Request::post(format!("{base}{ACCOUNTS}")).header("content-type", "application/json");
            let request = request.header("authorization", format!("Bearer {key}"));
            let request = request.body(Full::from(body.to_string())).unwrap();
            Answer::read(stack.http.fresh().open(request).await.ok()?).await.ok()
        };
        let calls = join_all((0..50).map(|n| post(&ports[n % 2])));
        let killed = async {
            sleep(Duration::from_millis(3 + 4 * round)).await;
            stack.key_services[0].kill();
        };
        let (answers, ()) = tokio::join!(calls, killed);
        stack.key_services[0].restart().await;
        let answers: Vec<Answer> =
            answers.into_iter().flatten().filter(|answer| answer.status < 500).collect();
        let ids: BTreeSet<String> = answers
            .iter()
            .map(|answer| answer.json()["id"].as_str().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(ids.len(), 1, "{ids:?}");
        assert!(answers.iter().filter(|answer| answer.status == 201).count() <= 1);
        for base in &ports {
            let again = post(base).await.unwrap();
            assert_eq!(
                (again.status, again.json()["id"].as_str()),
                (200, ids.first().map(String::as_str)),
                "{again}"
            );
        }
    }
    let url = format!("{}{ACCOUNTS}?order=asc", ports[0]);
    let listed = ask(&stack, &key, Method::GET, &url).await.json();
    let names: Vec<_> = listed["data"].as_array().unwrap().iter().map(|account| &account["name"]).collect();
    assert_eq!(names, ["default", "Customer 0", "Customer 1", "Customer 2", "Customer 3"]);
    stack.cli(&["audit"]);
}

#[apply(fact)]
async fn an_operator_key_is_made_with_a_fresh_code_alone() {
    let stack = Stack::start().await;
    let mut ann = newcomer(&stack, "ann").await;
    let (app, recovery) = enrol_at(SECOND_FACTOR, &mut ann, "").await;
    let with = |code| {
        [("name", "billing"), ("scopes", "read"), ("networks", ""), ("max_payment", "1000"), ("code", code)]
    };
    let keys = || stack.cli(&["operator-keys", "list", "--json"]);
    let mut member = signed_in(&stack, &stack.account, "owner").await;
    let refused = member.post(KEYS, &with(&recovery[0])).await;
    assert_eq!((refused.status, refused.header("location")), (303, "/operator/sign-in"));
    let mut bob = newcomer(&stack, "bob").await;
    bob.get(SECOND_FACTOR).await;
    assert_eq!(bob.post(KEYS, &with("000000")).await.header("location"), SECOND_FACTOR);
    assert!(ann.get(KEYS).await.text().contains("There are no operator keys."));
    for wrong in ["", "000000"] {
        let refused = ann.post(KEYS, &with(wrong)).await;
        assert!(refused.status == 403 && refused.text().contains("code-fault"), "{refused}");
    }
    let mut foreign = ann.clone();
    "http://evil.example".clone_into(&mut foreign.origin);
    assert_eq!(foreign.post(KEYS, &with(&recovery[0])).await.status, 403);
    assert_eq!(keys().trim(), "[]");
    let fresh = code(&app, 1);
    let made = ann.post(KEYS, &with(&fresh)).await;
    assert_eq!(made.status, 200, "{made}");
    let plaintext = made.text().split("fg_oper_").nth(1).unwrap();
    let plaintext = format!("fg_oper_{}", &plaintext[..49]);
    let url = port_of(stack.server()) + ACCOUNTS;
    assert_eq!(ask(&stack, &plaintext, Method::GET, &url).await.status, 200);
    ann.get(KEYS).await;
    let again = ann.post(KEYS, &with(&fresh)).await;
    assert_eq!(again.status, 403, "a code works once: {again}");
    let listed: Value = serde_json::from_str(&keys()).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    let path = format!("{KEYS}/{}", listed[0]["id"].as_str().unwrap());
    for bad in [
        [("scopes", ""), ("name", "x")],
        [("scopes", "all"), ("name", "x")],
        [("scopes", "read"), ("name", "")],
    ] {
        let refused = ann.post(KEYS, &bad).await;
        assert_eq!(refused.status, 422, "{refused}");
    }
    ann.get(&format!("{path}/rotate")).await;
    let refused = ann.post(&format!("{path}/rotate"), &[("grace", "0"), ("code", "000000")]).await;
    assert_eq!(refused.status, 403, "{refused}");
    let rotated = ann.post(&format!("{path}/rotate"), &[("grace", "3600"), ("code", &recovery[0])]).await;
    assert!(rotated.status == 200 && rotated.text().contains("fg_oper_"), "{rotated}");
    assert_eq!(ask(&stack, &plaintext, Method::GET, &url).await.status, 200, "until its grace ends");
    ann.get(&format!("{path}/revoke")).await;
    assert_eq!(ann.post(&format!("{path}/revoke"), &[]).await.status, 303);
    ask(&stack, &plaintext, Method::GET, &url).await.assert_error(401, "invalid_operator_key");
}

#[apply(fact)]
async fn each_act_of_an_operator_key_leaves_an_event_and_no_output_has_a_plaintext() {
    let stack = with("all").await;
    let key = operator_key(&stack, &["--scope", "accounts", "--scope", "read"]);
    let send = async |method, path: &str, body: Value| {
        let body = Some(body).filter(|body| !body.is_null());
        let answer = stack.http.send_as(&key, method, &stack.url(&format!("{ACCOUNTS}{path}")), body).await;
        assert!(matches!(answer.status, 200 | 201), "{path}: {answer}");
        answer.json()
    };
    send(Method::POST, "", json!({"name": "Acme", "external_id": "cus_1"})).await;
    let of = |path: &str| format!("/external:cus_1{path}");
    send(Method::PATCH, &of(""), json!({"metadata": {"plan": "gold"}})).await;
    let management = send(Method::POST, &of("/management_keys"), json!({"name": "deploy"})).await;
    let member = send(Method::POST, &of("/members"), json!({"name": "ann"})).await;
    let second = send(Method::POST, &of("/members"), json!({"name": "bob"})).await;
    let made = send(Method::POST, &of("/keys"), json!({"label": "x"})).await;
    let id = |object: &Value| object["id"].as_str().unwrap().to_owned();
    send(Method::DELETE, &of(&format!("/keys/{}", id(&made))), Value::Null).await;
    send(Method::DELETE, &of(&format!("/management_keys/{}", id(&management))), Value::Null).await;
    send(Method::DELETE, &of(&format!("/members/{}", id(&second))), Value::Null).await;
    let events = send(Method::GET, &of("/events?order=asc"), Value::Null).await;
    let told = events["data"].as_array().unwrap();
    let types: Vec<&str> = told.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        types,
        [
            "account.created",
            "account.updated",
            "management_key.created",
            "member.invited",
            "member.invited",
            "key.created",
            "key.revoked",
            "management_key.revoked",
            "member.removed",
        ]
    );
    assert!(
        told.iter()
            .all(|event| event["actor"]["type"] == "operator_key" && event["actor"]["name"] == "billing")
    );
    ask(&stack, "fg_oper_x", Method::GET, &stack.url(ACCOUNTS))
        .await
        .assert_error(401, "invalid_operator_key");
    let metrics = stack.http.get(&format!("{}/metrics", stack.server().admin())).await;
    let counted = "keyservice_operator_denials_total{reason=\"invalid_operator_key\"} 1";
    assert!(metrics.text().contains(counted), "{metrics}");
    let log = stack.server().log();
    let of_key = events["data"][0]["actor"]["id"].as_str().unwrap();
    assert!(log.contains(of_key) && log.contains("billing"), "a line names the key by id and name: {log}");
    let outputs = [
        log,
        metrics.text().to_owned(),
        events.to_string(),
        stack.cli(&["events", "export", "--account", "Acme"]),
        stack.cli(&["operator-keys", "list", "--json"]),
        stack.server().stdout(),
    ];
    let link = member["link"].as_str().unwrap().split_once('#').unwrap().1.to_owned();
    for secret in [&key, made["key"].as_str().unwrap(), management["key"].as_str().unwrap(), &link] {
        let random = &secret[secret.len() - 40..secret.len() - 6];
        assert!(outputs.iter().all(|output| !output.contains(random)), "a plaintext is in an output");
    }
}

#[apply(fact)]
async fn whatever_the_operator_api_answers_is_described() {
    let stack = with("all").await;
    let key = operator_key(&stack, &["--scope", "accounts", "--scope", "read"]);
    let catalogue = operator_key(&stack, &["--scope", "catalogue"]);
    let door = Door::before(&stack.url("")).await;
    let send = async |key: &str, method, path: &str, body: Value| {
        let body = Some(body).filter(|body| !body.is_null());
        stack.http.send_as(key, method, &format!("{}/v1/operator{path}", door.url()), body).await
    };
    let description = send(&key, Method::GET, "/openapi.json", Value::Null).await.json();
    let accounts = [
        json!({"name": "Acme", "external_id": "cus_1", "metadata": {"a": "1"}}),
        json!({"name": "Acme", "external_id": "cus_1"}),
        json!({"name": "Acme"}),
        json!({"name": "Plain", "external_id": null, "metadata": null}),
        json!({"name": 7}),
    ];
    for body in accounts {
        send(&key, Method::POST, "/accounts", body).await;
    }
    let of = |path: &str| format!("/accounts/external:cus_1{path}");
    let id = |answer: &Answer| answer.json()["id"].as_str().unwrap().to_owned();
    let management =
        send(&key, Method::POST, &of("/management_keys"), json!({"name": "m", "expires_at": null})).await;
    let member = send(&key, Method::POST, &of("/members"), json!({"name": "ann", "role": "viewer"})).await;
    let made = send(&key, Method::POST, &of("/keys"), json!({"label": "x", "limit": 1})).await;
    let group = send(&key, Method::POST, &of("/groups"), json!({"name": "g"})).await;
    let hook = send(&key, Method::POST, &of("/webhooks"), json!({"url": "https://example.com/x"})).await;
    send(&key, Method::POST, &of(&format!("/members/{}/link", id(&member))), Value::Null).await;
    send(&key, Method::PATCH, &of(""), json!({"metadata": {"a": null}, "external_id": "cus_1"})).await;
    send(&key, Method::PATCH, &of(""), json!({"external_id": "cus_2"})).await;
    for body in [json!({"reason": ""}), json!({"reason": "unpaid"})] {
        send(&key, Method::POST, &of("/suspend"), body).await;
    }
    send(&key, Method::POST, &of("/restore"), Value::Null).await;
    send(&key, Method::POST, &of("/close"), Value::Null).await;
    for (kind, made) in
        [("keys", &made), ("groups", &group), ("webhooks", &hook), ("management_keys", &management)]
    {
        let one = of(&format!("/{kind}/{}", id(made)));
        send(&key, Method::GET, &one, Value::Null).await;
        send(&catalogue, Method::GET, &one, Value::Null).await;
        send("x", Method::GET, &one, Value::Null).await;
        send(&key, Method::GET, &of(&format!("/{kind}/x")), Value::Null).await;
        send(&key, Method::GET, &of(&format!("/{kind}?limit=0")), Value::Null).await;
        send(&key, Method::GET, &of(&format!("/{kind}")), Value::Null).await;
        send(&key, Method::DELETE, &one, Value::Null).await;
    }
    for path in ["", "?name=Acme", "?external_id=cus_1", "/acct_0", "/external:cus_1"] {
        send(&key, Method::GET, &format!("/accounts{path}"), Value::Null).await;
    }
    for path in ["/members", "/credits", "/usage", "/generations", "/refusals", "/events"] {
        send(&key, Method::GET, &of(path), Value::Null).await;
    }
    send(&key, Method::DELETE, &of(&format!("/members/{}", id(&member))), Value::Null).await;
    send(&key, Method::POST, &of("/suspend"), json!({"reason": "left"})).await;
    send(&key, Method::POST, &of("/close"), Value::Null).await;
    send(&key, Method::POST, &of("/keys"), json!({})).await;
    send(&key, Method::GET, "/events", Value::Null).await;
    send(&stack.account.management_key, Method::GET, "/events", Value::Null).await;
    assert_described_by(&description, &door.exchanges()).await;
}

#[apply(fact)]
async fn pages_of_operator_keys_open_for_operators_with_a_second_factor_alone() {
    let stack = Stack::start().await;
    let key = operator_key(&stack, &["--scope", "read"]);
    let listed: Value = serde_json::from_str(&stack.cli(&["operator-keys", "list", "--json"])).unwrap();
    let path = format!("{KEYS}/{}", listed[0]["id"].as_str().unwrap());
    let mut ann = operator(&stack, "ann").await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let mut program = Browser::at(&stack.url(""));
    program.headers = vec![("authorization", format!("Bearer {key}"))];
    for path in [KEYS.to_owned(), format!("{path}/rotate"), format!("{path}/revoke")] {
        for browser in [&mut owner, &mut program] {
            let page = browser.get(&path).await;
            assert_eq!((page.status, page.header("location")), (303, "/operator/sign-in"), "{path}");
        }
        let page = ann.get(&path).await;
        assert!(page.status == 200 && page.text().contains("billing"), "{page}");
    }
    for form in [format!("{path}/rotate"), format!("{path}/revoke"), KEYS.to_owned()] {
        for browser in [&mut owner, &mut program] {
            assert_eq!(browser.post(&form, &[("grace", "0")]).await.header("location"), "/operator/sign-in");
        }
    }
    assert_eq!(ask(&stack, &key, Method::GET, &(port_of(stack.server()) + ACCOUNTS)).await.status, 200);
    assert_eq!(ann.get(&format!("{KEYS}/opk_0/rotate")).await.status, 404);
}
