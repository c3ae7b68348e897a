//! The operator API: who may use it, accounts, and the management API of any account.

mod payments;

use shared::{
    ids::KeyId,
    secret::ExposeSecret,
    wire::{ACCOUNTS, OPERATOR_DESCRIPTION, OPERATOR_EVENTS, OPERATOR_ROUTES, OperatorScope},
};

use super::*;
use domain::event::Actor;
use key_service_management::operator_keys::{DEFAULT_MAX_PAYMENT, OperatorKeySettings};
use key_service_store::store::operators;

impl Desk {
    async fn operator_key(&self, settings: OperatorKeySettings) -> String {
        let made = self.office.management.create_operator_key(settings, Actor::System).await.unwrap();
        made.expose_secret().to_owned()
    }

    /// Returns a desk whose credential is an operator key with these scopes.
    async fn operator(&self, scopes: &[OperatorScope]) -> Self {
        let credential = self.operator_key(with_scopes(scopes)).await;
        Self { credential, ..Self::of(self) }
    }

    fn presenting_key(&self, credential: &str) -> Self {
        Self { credential: credential.to_owned(), ..Self::of(self) }
    }

    /// Sends a request that a gateway passes on from a client at this address.
    async fn from(&self, address: &str, path: &str) -> Answer {
        let request = self.request(Method::GET, path).header("x-internal-token", "token");
        self.send(request.header("x-forwarded-for", address).body(Body::empty()).unwrap()).await
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call(Method::POST, path, body.to_string()).await
    }
}

fn with_scopes(scopes: &[OperatorScope]) -> OperatorKeySettings {
    OperatorKeySettings {
        name: "billing".into(),
        scopes: scopes.to_vec(),
        expires_at: None,
        networks: None,
        max_payment: DEFAULT_MAX_PAYMENT,
    }
}

/// Path of the desk's account in the operator API.
fn account_path(desk: &Desk) -> String {
    format!("{ACCOUNTS}/{}", desk.account)
}

#[tokio::test]
async fn each_class_of_key_works_on_its_own_routes_alone() {
    let desk = Desk::open().await;
    let api_key = desk.created("{}").await["key"].as_str().unwrap().to_owned();
    let operator = desk.operator(&OperatorScope::ALL).await;
    let (of_operators, of_management) = (account_path(&desk), KEYS.to_owned());
    assert_eq!(operator.get(&of_operators).await.status, 200);
    operator.get(&of_management).await.is_error(403, "operator_key_not_allowed", None);
    operator.get(OWN_KEY).await.is_error(403, "operator_key_not_allowed", None);
    for key in [&api_key, &desk.credential] {
        desk.presenting_key(key).get(&of_operators).await.is_error(403, "operator_key_required", None);
    }
    let keys = desk.office.management.operator_keys().await.unwrap();
    desk.office.management.revoke_operator_key(keys[0].id, Actor::System).await.unwrap();
    operator.get(&of_operators).await.is_error(401, "invalid_operator_key", None);
    operator.get(&of_management).await.is_error(401, "invalid_management_key", None);
    operator.get(OWN_KEY).await.is_error(401, "invalid_api_key", None);
    let expires_at = Timestamp::parse("2026-11-20T02:12:00Z");
    let short = OperatorKeySettings { expires_at, ..with_scopes(&[OperatorScope::Read]) };
    let short = desk.presenting_key(&desk.operator_key(short).await);
    assert_eq!(short.get(&of_operators).await.status, 200);
    desk.office.clock.set("2026-11-20T02:12:00Z");
    short.get(&of_operators).await.is_error(401, "key_expired", None);
    short.get(&of_management).await.is_error(401, "invalid_management_key", None);
    let unknown = Office::open();
    let unknown = unknown.management.create_operator_key(with_scopes(&[OperatorScope::Read]), Actor::System);
    let unknown = unknown.await.unwrap().expose_secret().to_owned();
    for credential in [unknown.as_str(), "x", "fg_oper_x"] {
        let stranger = desk.presenting_key(credential);
        stranger.get(&of_operators).await.is_error(401, "invalid_operator_key", None);
    }
    let request = Request::get(&of_operators).body(Body::empty()).unwrap();
    desk.send(request).await.is_error(401, "missing_api_key", None);
}

#[tokio::test]
async fn a_key_with_networks_works_from_them_alone_and_nobody_can_claim_an_address() {
    let desk = Desk::open().await;
    let networks = Some(vec!["203.0.113.0/24".parse().unwrap()]);
    let settings = OperatorKeySettings { networks, ..with_scopes(&[OperatorScope::Read]) };
    let operator = desk.presenting_key(&desk.operator_key(settings).await);
    let path = account_path(&desk);
    assert_eq!(operator.from("203.0.113.7", &path).await.status, 200);
    let refused = "operator_network_not_allowed";
    operator.from("198.51.100.7", &path).await.is_error(403, refused, None);
    operator.get(&path).await.is_error(403, refused, None);
    let claimed = operator.request(Method::GET, &path).header("x-forwarded-for", "203.0.113.7");
    operator.send(claimed.body(Body::empty()).unwrap()).await.is_error(403, refused, None);
}

/// Replaces the placeholders in a path with the desk's account and this id.
fn with_ids(desk: &Desk, path: &str, id: &str) -> String {
    path.replace("{account}", &desk.account.to_string()).replace("{id}", id)
}

#[tokio::test]
async fn each_route_takes_the_scopes_of_its_row_and_refuses_all_others_before_anything_else() {
    for row in OPERATOR_ROUTES.iter().chain(&ROUTES) {
        let Some(path) = row.operator_path() else { continue };
        let desk = Desk::open().await;
        for scope in OperatorScope::ALL {
            let operator = desk.operator(&[scope]).await;
            let answer = operator.call(row.method(), &with_ids(&desk, &path, "x"), "{").await;
            let shown = format!("{} {path} with {scope:?}", row.method());
            if row.scopes().contains(&scope) {
                assert_ne!(answer.status, 403, "{shown}: {}", answer.text);
                assert_ne!(answer.json["error"]["code"], "unknown_url", "{shown}");
            } else {
                answer.is_error(403, "operator_scope_missing", None);
                let elsewhere = path.replace("{account}", "acct_0");
                let hidden = operator.call(row.method(), &elsewhere.replace("{id}", "x"), "{").await;
                hidden.is_error(403, "operator_scope_missing", None);
            }
        }
    }
    let reads =
        |scope| OPERATOR_ROUTES.iter().chain(&ROUTES).filter(move |row| row.scopes().contains(&scope));
    assert!(reads(OperatorScope::Read).all(|row| row.method() == Method::GET), "read changes nothing");
    assert!(reads(OperatorScope::Catalogue).count() == 0 && reads(OperatorScope::Credit).count() == 6);
}

#[tokio::test]
async fn the_management_api_of_any_account_answers_operators_as_it_answers_the_account() {
    let desk = Desk::open().await;
    let group = desk.group(r#"{"name":"team"}"#).await;
    let key = desk.created_id("{}").await;
    let bill = desk.bill(&key, 1_000).await;
    let webhook = desk.call(Method::POST, WEBHOOKS, r#"{"url":"https://example.com/x"}"#).await;
    let webhook = id_of(&webhook.json);
    let alert = desk.call(Method::POST, ALERTS, r#"{"rule":"refused","channel":"webhook"}"#).await;
    let alert = id_of(&alert.json);
    let operator = desk.operator(&[OperatorScope::Accounts]).await;
    let mut compared = 0;
    for row in ROUTES.iter().filter(|row| row.method() == Method::GET) {
        let Some(path) = row.operator_path() else { continue };
        let id = match row.of {
            KEYS => key.as_str(),
            GROUPS => group.rsplit('/').next().unwrap(),
            WEBHOOKS => webhook.as_str(),
            ALERTS => alert.as_str(),
            _ => bill.as_str(),
        };
        let own = desk.get(&row.path().replace("{id}", id)).await;
        let mirrored = operator.get(&with_ids(&desk, &path, id)).await;
        assert_eq!((mirrored.status, &mirrored.text), (own.status, &own.text), "{path}");
        assert_eq!(own.status, 200, "{path}: {}", own.text);
        compared += 1;
    }
    assert_eq!(compared, 17, "every route that reads");
}

#[tokio::test]
async fn an_operator_key_governs_an_account_and_events_name_it() {
    let desk = Desk::open().await;
    let operator = desk.operator(&[OperatorScope::Accounts]).await;
    let keys = format!("{}/keys", account_path(&desk));
    let made = operator.post(&keys, &json!({"label": "by billing"})).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let id = id_of(&made.json);
    assert_eq!(made.headers["location"], format!("{keys}/{id}"));
    assert_eq!(operator.get(&format!("{keys}/{id}")).await.json["label"], "by billing");
    let patched = operator.call(Method::PATCH, &format!("{keys}/{id}"), r#"{"limit":5}"#).await;
    assert_eq!(patched.json["limit"], 5);
    assert_eq!(operator.call(Method::DELETE, &format!("{keys}/{id}"), "").await.json["status"], "revoked");
    let events = desk.get(EVENTS).await;
    let of_key = desk.office.management.operator_keys().await.unwrap().remove(0);
    let acts: Vec<&str> = events.json["data"]
        .as_array()
        .unwrap()
        .iter()
        .take(3)
        .map(|event| {
            assert_eq!(event["actor"]["type"], "operator_key");
            assert_eq!(event["actor"]["id"], of_key.id.to_string());
            assert_eq!(event["actor"]["name"], "billing");
            event["type"].as_str().unwrap()
        })
        .collect();
    assert_eq!(acts, ["key.revoked", "key.updated", "key.created"]);
    for secret in [made.json["key"].as_str().unwrap(), &operator.credential] {
        assert!(!events.text.contains(secret) && !events.text.contains(&secret[8..]));
    }
}

#[tokio::test]
async fn an_idempotency_key_of_an_operator_is_apart_from_the_accounts_own() {
    let desk = Desk::open().await;
    let operator = desk.operator(&[OperatorScope::Accounts]).await;
    let keys = format!("{}/keys", account_path(&desk));
    let own = desk.once(KEYS, "k-1", r#"{"label":"own"}"#).await;
    let theirs = operator.once(&keys, "k-1", r#"{"label":"theirs"}"#).await;
    assert_eq!((own.status.as_u16(), theirs.status.as_u16()), (201, 201), "{}", theirs.text);
    assert_ne!(own.json["id"], theirs.json["id"]);
    let again = operator.once(&keys, "k-1", r#"{"label":"theirs"}"#).await;
    assert_eq!((again.status.as_u16(), &again.json["id"]), (201, &theirs.json["id"]));
    assert_eq!(again.headers["idempotent-replayed"], "true");
}

#[tokio::test]
async fn an_account_is_made_once_for_each_external_id() {
    let desk = Desk::open().await;
    let operator = desk.operator(&[OperatorScope::Accounts]).await;
    let body = json!({"name": "Nantes", "external_id": "cus/7 ü", "metadata": {"plan": "gold"}});
    let made = operator.post(ACCOUNTS, &body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let path = format!("{ACCOUNTS}/{}", id_of(&made.json));
    assert_eq!(made.headers["location"], path);
    let expected = json!({
        "id": made.json["id"], "object": "account", "name": "Nantes", "external_id": "cus/7 ü", "credit": 0,
        "held": 0, "keys": 0, "groups": 0, "metadata": {"plan": "gold"}, "created_at": "2026-11-20T02:11:05Z",
        "status": "active", "suspended_at": null, "suspended_reason": null, "closed_at": null,
    });
    assert_eq!(made.json, expected);
    let other = json!({"name": "Other", "external_id": "cus/7 ü", "metadata": {"plan": "none"}});
    for repeated in [&body, &other] {
        let again = operator.post(ACCOUNTS, repeated).await;
        assert_eq!((again.status.as_u16(), &again.json), (200, &expected), "{repeated}");
    }
    for by in [path.clone(), format!("{ACCOUNTS}/external:cus%2F7%20%C3%BC")] {
        let fetched = operator.get(&by).await.json;
        assert_eq!((&fetched["id"], &fetched["total_deposited"]), (&made.json["id"], &json!(0)), "{by}");
    }
    let taken = operator.post(ACCOUNTS, &json!({"name": "Nantes", "external_id": "cus_8"})).await;
    taken.is_error(409, "account_name_taken", Some("name"));
    assert!(taken.text.contains(&id_of(&made.json)) && taken.headers["x-should-retry"] == "false");
    operator.get(&format!("{ACCOUNTS}/external:cus_8")).await.is_error(404, "account_not_found", None);
    let waiting = operator.post(ACCOUNTS, &json!({"name": "Nantes 2", "external_id": "cus_8"})).await;
    assert_eq!(waiting.status, 201, "the claim waits for another name: {}", waiting.text);
    let plain = operator.post(ACCOUNTS, &json!({"name": "Plain"})).await;
    assert_eq!((plain.status.as_u16(), &plain.json["external_id"]), (201, &Value::Null));
    let twice = operator.post(ACCOUNTS, &json!({"name": "Plain"})).await;
    twice.is_error(409, "account_name_taken", Some("name"));
    assert!(twice.text.contains(&id_of(&plain.json)));
}

#[tokio::test]
async fn bad_accounts_are_refused_by_the_name_of_the_field_and_change_nothing() {
    let desk = Desk::open().await;
    let operator = desk.operator(&[OperatorScope::Accounts]).await;
    let before = operator.get(ACCOUNTS).await.text;
    let many: std::collections::BTreeMap<String, &str> = (0..17).map(|n| (format!("m{n}"), "x")).collect();
    for (body, code, param) in [
        (json!({}), "missing_required_parameter", "name"),
        (json!({"name": ""}), "invalid_value", "name"),
        (json!({"name": " a"}), "invalid_value", "name"),
        (json!({"name": "x".repeat(81)}), "string_above_max_length", "name"),
        (json!({"name": null}), "invalid_type", "name"),
        (json!({"name": "a", "external_id": ""}), "empty_string", "external_id"),
        (json!({"name": "a", "external_id": "x".repeat(129)}), "string_above_max_length", "external_id"),
        (json!({"name": "a", "metadata": many}), "object_above_max_properties", "metadata"),
        (json!({"name": "a", "credit": 5}), "unknown_parameter", "credit"),
    ] {
        operator.post(ACCOUNTS, &body).await.is_error(400, code, Some(param));
    }
    assert_eq!(operator.get(ACCOUNTS).await.text, before);
}

#[tokio::test]
async fn an_account_takes_one_external_id_and_its_metadata_are_merged() {
    let desk = Desk::open().await;
    let operator = desk.operator(&[OperatorScope::Accounts]).await;
    let path = account_path(&desk);
    let change = async |body: Value| operator.call(Method::PATCH, &path, body.to_string()).await;
    let set = change(json!({"external_id": "cus_1", "metadata": {"a": "1", "b": "2"}})).await;
    assert_eq!((set.status.as_u16(), &set.json["external_id"]), (200, &json!("cus_1")), "{}", set.text);
    assert_eq!(
        change(json!({"external_id": "cus_1", "metadata": {"a": null}})).await.json["metadata"],
        json!({"b": "2"})
    );
    for fixed in [json!("cus_2"), Value::Null] {
        change(json!({"external_id": fixed})).await.is_error(400, "invalid_value", Some("external_id"));
    }
    change(json!({"name": "other"})).await.is_error(400, "unknown_parameter", Some("name"));
    let second = operator.post(ACCOUNTS, &json!({"name": "Second"})).await;
    let second = format!("{ACCOUNTS}/{}", id_of(&second.json));
    let taken = operator.call(Method::PATCH, &second, r#"{"external_id":"cus_1"}"#).await;
    taken.is_error(409, "external_id_taken", Some("external_id"));
    let renewed = operator.call(Method::PATCH, &second, r#"{"external_id":"cus_2"}"#).await;
    assert_eq!(renewed.json["external_id"], "cus_2", "a refused id is free: {}", renewed.text);
    let events = operator.get(&format!("{path}/events?type=account.updated")).await;
    assert_eq!(ids_in(&events).0.len(), 2, "{}", events.text);
    assert_eq!(events.json["data"][1]["data"]["changes"]["external_id"], json!([null, "cus_1"]));
}

#[tokio::test]
async fn accounts_are_listed_in_pages_of_a_hundred_and_filtered() {
    let desk = Desk::open().await;
    let operator = desk.operator(&[OperatorScope::Accounts]).await;
    for n in 0..101 {
        let plan = if n % 50 == 0 { "gold" } else { "none" };
        let body = json!({"name": format!("Customer {n}"), "external_id": format!("c{n}"), "metadata": {"plan": plan}});
        assert_eq!(operator.post(ACCOUNTS, &body).await.status, 201);
    }
    let (first, more) = ids_in(&operator.get(ACCOUNTS).await);
    assert_eq!((first.len(), more), (100, true));
    let (rest, more) = ids_in(&operator.get(&format!("{ACCOUNTS}?after={}", first[99])).await);
    assert_eq!((rest.len(), more), (2, false), "with the desk's own account");
    let (oldest, _) = ids_in(&operator.get(&format!("{ACCOUNTS}?order=asc&limit=1")).await);
    assert_eq!(oldest, [desk.account.to_string()]);
    for (query, found) in [
        ("metadata[plan]=gold", 3),
        ("name=Customer+7", 1),
        ("external_id=c7", 1),
        ("external_id=c7&name=Customer+8", 0),
        ("external_id=c7&metadata[plan]=gold", 0),
        ("name=nobody", 0),
    ] {
        let query = query.replace('[', "%5B").replace(']', "%5D");
        assert_eq!(ids_in(&operator.get(&format!("{ACCOUNTS}?{query}")).await).0.len(), found, "{query}");
    }
    let unknown = format!("{ACCOUNTS}?after=acct_00000000000070008000000000000000");
    operator.get(&unknown).await.is_error(400, "invalid_value", Some("after"));
}

#[tokio::test]
async fn keys_of_an_account_come_in_pages_for_operators() {
    let desk = Desk::open().await;
    for _ in 0..101 {
        desk.created_id("{}").await;
    }
    assert_eq!(ids_in(&desk.get(KEYS).await).0.len(), 101);
    let operator = desk.operator(&[OperatorScope::Read]).await;
    let (page, more) = ids_in(&operator.get(&format!("{}/keys", account_path(&desk))).await);
    assert_eq!((page.len(), more), (100, true));
}

#[tokio::test]
async fn the_operators_own_account_is_none_that_a_key_can_govern() {
    let desk = Desk::open().await;
    desk.office.management.create_operator("ann", Actor::System).await.unwrap();
    let operator = desk.operator(&OperatorScope::ALL).await;
    let own = format!("{ACCOUNTS}/{}", operators());
    for (method, path, body) in [
        (Method::GET, own.clone(), ""),
        (Method::PATCH, own.clone(), "{}"),
        (Method::GET, format!("{own}/members"), ""),
        (Method::POST, format!("{own}/members"), r#"{"name":"eve"}"#),
        (Method::POST, format!("{own}/management_keys"), r#"{"name":"eve"}"#),
        (Method::POST, format!("{own}/keys"), "{}"),
        (Method::GET, format!("{own}/events"), ""),
    ] {
        operator.call(method, &path, body).await.is_error(404, "account_not_found", None);
    }
    let members = desk.office.management.operators().await.unwrap();
    assert_eq!(members.len(), 1);
    for unknown in
        ["acct_0", "external:nobody", "external:", "x", &KeyId::generate(&*desk.office.clock).to_string()]
    {
        operator.get(&format!("{ACCOUNTS}/{unknown}")).await.is_error(404, "account_not_found", None);
    }
}

#[tokio::test]
async fn management_keys_of_an_account_are_made_once_and_revoked() {
    let desk = Desk::open().await;
    let operator = desk.operator(&[OperatorScope::Accounts]).await;
    let path = format!("{}/management_keys", account_path(&desk));
    let body = r#"{"name":"deploy","scope":"read","expires_at":"2027-12-31T23:59:59Z"}"#;
    let made = operator.once(&path, "m-1", body).await;
    assert_eq!((made.status.as_u16(), &made.json["scope"]), (201, &json!("read")), "{}", made.text);
    let works = desk.presenting_key(made.json["key"].as_str().unwrap());
    assert_eq!(works.get(KEYS).await.status, 200);
    let again = operator.once(&path, "m-1", body).await;
    assert_eq!((&again.json["id"], &again.json["key"]), (&made.json["id"], &Value::Null));
    assert_eq!(again.headers["idempotent-replayed"], "true");
    let reused = operator.once(&path, "m-1", r#"{"name":"other"}"#).await;
    reused.is_error(409, "idempotency_key_reuse", None);
    let (listed, _) = ids_in(&operator.get(&path).await);
    assert_eq!((listed.len(), &listed[0]), (2, &id_of(&made.json)));
    let one = format!("{path}/{}", id_of(&made.json));
    assert_eq!(operator.get(&one).await.json["name"], "deploy");
    let other = operator.post(ACCOUNTS, &json!({"name": "Other"})).await;
    let elsewhere = format!("{ACCOUNTS}/{}/management_keys/{}", id_of(&other.json), id_of(&made.json));
    for method in [Method::GET, Method::DELETE] {
        operator.call(method, &elsewhere, "").await.is_error(404, "management_key_not_found", None);
    }
    assert_eq!(works.get(KEYS).await.status, 200, "another account's path revokes nothing");
    let revoked = operator.call(Method::DELETE, &one, "").await;
    assert!(revoked.json["revoked_at"].is_string(), "{}", revoked.text);
    works.get(KEYS).await.is_error(401, "invalid_management_key", None);
    for (body, code, param) in [
        ("{}", "missing_required_parameter", Some("name")),
        (r#"{"name":" x"}"#, "invalid_value", Some("name")),
        (r#"{"name":"x","scope":"all"}"#, "invalid_value", Some("scope")),
        (
            r#"{"name":"x","group_id":"grp_00000000000070008000000000000000"}"#,
            "invalid_value",
            Some("group_id"),
        ),
    ] {
        operator.call(Method::POST, &path, body).await.is_error(400, code, param);
    }
}

#[tokio::test]
async fn members_of_an_account_are_invited_once_linked_and_removed() {
    let desk = Desk::open().await;
    let operator = desk.operator(&[OperatorScope::Accounts]).await;
    let path = format!("{}/members", account_path(&desk));
    let made = operator.once(&path, "i-1", r#"{"name":"ann"}"#).await;
    assert_eq!((made.status.as_u16(), &made.json["role"]), (201, &json!("owner")), "{}", made.text);
    let link = made.json["link"].as_str().unwrap();
    assert!(link.starts_with("http://x/dashboard/sign-in/link#"), "{link}");
    let again = operator.once(&path, "i-1", r#"{"name":"ann"}"#).await;
    assert_eq!((&again.json["id"], &again.json["link"]), (&made.json["id"], &Value::Null));
    operator.call(Method::POST, &path, r#"{"name":"ann"}"#).await.is_error(
        409,
        "member_name_taken",
        Some("name"),
    );
    let lead = r#"{"name":"bob","role":"lead"}"#;
    operator.call(Method::POST, &path, lead).await.is_error(400, "invalid_value", Some("group_id"));
    let one = format!("{path}/{}", id_of(&made.json));
    let linked = operator.call(Method::POST, &format!("{one}/link"), "").await;
    assert!(linked.json["link"].is_string() && linked.json["link"] != made.json["link"], "{}", linked.text);
    operator.call(Method::DELETE, &one, "").await.is_error(409, "last_owner", None);
    let second = operator.call(Method::POST, &path, r#"{"name":"bob"}"#).await;
    assert_eq!(ids_in(&operator.get(&path).await).0.len(), 2);
    assert_eq!(operator.call(Method::DELETE, &one, "").await.status, 200);
    operator.call(Method::DELETE, &one, "").await.is_error(404, "member_not_found", None);
    assert_eq!(ids_in(&operator.get(&path).await).0, [id_of(&second.json)]);
}

#[tokio::test]
async fn the_installations_events_tell_of_operators_and_their_keys() {
    let desk = Desk::open().await;
    let operator = desk.operator(&[OperatorScope::Read]).await;
    desk.office.management.create_operator("ann", Actor::System).await.unwrap();
    let events = operator.get(OPERATOR_EVENTS).await;
    let types: Vec<_> = events.json["data"].as_array().unwrap().iter().map(|event| &event["type"]).collect();
    assert_eq!(types, ["member.invited", "operator_key.created"]);
    let data = &events.json["data"][1]["data"];
    assert_eq!((&data["scopes"], &data["max_payment"]), (&json!(["read"]), &json!(1_000)));
    let filtered = operator.get(&format!("{OPERATOR_EVENTS}?type=operator_key.created")).await;
    assert_eq!(ids_in(&filtered).0.len(), 1);
}

#[tokio::test]
async fn the_description_has_every_route_of_operators_and_no_other() {
    let desk = Desk::open().await;
    let operator = desk.operator(&[OperatorScope::Read]).await;
    let described = operator.get(OPERATOR_DESCRIPTION).await;
    let paths = described.json["paths"].as_object().unwrap();
    for row in OPERATOR_ROUTES.iter().chain(&ROUTES) {
        let Some(path) = row.operator_path() else { continue };
        let operation = &paths[&path][row.method().as_str().to_lowercase()];
        assert!(operation["operationId"].is_string(), "{} {path}", row.method());
    }
    assert!(paths.keys().all(|path| path.starts_with("/v1/operator/")), "{:?}", paths.keys());
    let schemas = described.json["components"]["schemas"].as_object().unwrap();
    for named in described.text.split("#/components/schemas/").skip(1) {
        let name = named.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name}");
    }
}
