//! What management keys may do: scope, group, expiry.

use std::collections::BTreeSet;

use super::*;
use shared::wire::Reach;

use domain::{
    access::{Access, Scope},
    event::Actor,
};
use key_service_management::management_keys::ManagementKeySettings;

const WEBHOOK: &str = r#"{"url": "https://example.com/events"}"#;
const ALERT: &str = r#"{"rule": "refused", "channel": "webhook"}"#;

/// An account with a group, its child group and another group. Each of these groups has one key, a fourth key is in no
/// group, and each key was billed.
struct Team {
    desk: Desk,
    own: String,
    child: String,
    other: String,
    /// Keys in the group, in the child group, in the other group, and in no group.
    keys: [String; 4],
    /// A billed generation of each key.
    bills: [String; 4],
    webhook: String,
    alert: String,
}

impl Team {
    async fn open() -> Self {
        let desk = Desk::open().await;
        let id = |path: String| path.rsplit('/').next().unwrap().to_owned();
        let own = id(desk.group(r#"{"name":"own"}"#).await);
        let child = id(desk.group(&format!(r#"{{"parent_id":"{own}"}}"#)).await);
        let other = id(desk.group(r#"{"name":"other"}"#).await);
        let (mut keys, mut bills) = (Vec::new(), Vec::new());
        for group in [Some(&own), Some(&child), Some(&other), None] {
            let key = desk.created_id(&json!({"group_id": group}).to_string()).await;
            bills.push(desk.bill(&key, 1_000).await);
            keys.push(key);
        }
        let (keys, bills) = (keys.try_into().unwrap(), bills.try_into().unwrap());
        let webhook =
            desk.call(Method::POST, WEBHOOKS, WEBHOOK).await.json["id"].as_str().unwrap().to_owned();
        let alert = desk.call(Method::POST, ALERTS, ALERT).await.json["id"].as_str().unwrap().to_owned();
        Self { desk, own, child, other, keys, bills, webhook, alert }
    }

    /// Returns a desk whose management key has these rights.
    async fn with(&self, scope: Scope, group: Option<&str>) -> Desk {
        let access = Access { scope, group: group.map(|group| group.parse().unwrap()) };
        self.desk.with_key(ManagementKeySettings { access, ..ManagementKeySettings::full("x") }).await
    }
}

impl Desk {
    async fn with_key(&self, settings: ManagementKeySettings) -> Self {
        let made = self
            .office
            .management
            .create_management_key(self.account, settings, Actor::System)
            .await
            .unwrap();
        let credential = secrecy_of(&made);
        Self { credential, ..Self::of(self) }
    }

    async fn ids(&self, path: &str) -> BTreeSet<String> {
        ids_in(&self.get(path).await).0.into_iter().collect()
    }
}

fn secrecy_of(plaintext: &shared::secret::SecretString) -> String {
    shared::secret::ExposeSecret::expose_secret(plaintext).to_owned()
}

fn set(ids: &[&String]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).clone()).collect()
}

#[tokio::test]
async fn each_route_is_open_to_the_keys_whose_scope_and_group_allow_it() {
    for row in &ROUTES {
        let (method, route, reach) = (row.method(), row.path(), row.reach);
        for (scope, is_of_group) in
            [Scope::Full, Scope::Read].into_iter().flat_map(|scope| [(scope, false), (scope, true)])
        {
            let team = Team::open().await;
            let desk = team.with(scope, is_of_group.then_some(&team.own)).await;
            let id = match row.of {
                KEYS => &team.keys[0],
                GROUPS => &team.own,
                WEBHOOKS => &team.webhook,
                ALERTS => &team.alert,
                _ => &team.bills[0],
            };
            let before = team.desk.everything().await;
            let pays = matches!(row.endpoint, Endpoint::PayGroup | Endpoint::RefundGroup);
            let body = match route.as_str() {
                WEBHOOKS => WEBHOOK,
                ALERTS => ALERT,
                _ if pays => r#"{"payment_id":"p1","amount":1}"#,
                _ => "{}",
            };
            if pays {
                team.desk.call(Method::PATCH, &format!("{GROUPS}/{id}"), r#"{"limit":5}"#).await;
            }
            let answer = desk.call(method.clone(), &route.replace("{id}", id), body).await;
            let shown = format!("{method} {route} with {scope:?}, of a group: {is_of_group}");
            let refusal = match reach {
                Reach::Holder => Some("management_key_not_allowed"),
                Reach::Keys | Reach::Account if scope == Scope::Read && method != Method::GET => {
                    Some("read_only_key")
                }
                Reach::Account if is_of_group => Some("group_key_not_allowed"),
                Reach::Keys | Reach::Account | Reach::Installation => None,
            };
            match refusal {
                Some(code) => {
                    assert_eq!(answer.json["error"]["code"], code, "{shown}");
                    answer.is_error(403, code, None);
                    assert_eq!(team.desk.everything().await, before, "{shown}");
                }
                None => assert!(answer.status.is_success(), "{shown}: {}", answer.text),
            }
        }
    }
}

#[tokio::test]
async fn a_path_takes_the_methods_of_its_routes_and_no_other() {
    let desk = Desk::open().await;
    for path in ROUTES.iter().map(Route::path) {
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let is_listed = ROUTES.iter().any(|route| route.method() == method && route.path() == path);
            let answer = desk.call(method.clone(), &path.replace("{id}", "x"), "{").await;
            assert_eq!(answer.status != StatusCode::METHOD_NOT_ALLOWED, is_listed, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_key_of_a_group_meets_no_key_beyond_the_group_and_its_child_groups() {
    let team = Team::open().await;
    let desk = team.with(Scope::Full, Some(&team.own)).await;
    let theirs = {
        let mut desk = Desk::of(&team.desk);
        (desk.account, desk.credential) = team.desk.office.account("theirs").await;
        desk.created_id("{}").await
    };
    let unknown = "ak_00000000000070008000000000000000".to_owned();
    let before = team.desk.everything().await;
    for id in [&team.keys[2], &team.keys[3], &theirs, &unknown] {
        let path = format!("{KEYS}/{id}");
        desk.get(&path).await.is_error(404, "key_not_found", None);
        desk.patch(id, r#"{"label":"mine"}"#).await.is_error(404, "key_not_found", None);
        desk.patch(id, &json!({"group_id": team.own}).to_string()).await.is_error(404, "key_not_found", None);
        desk.delete(id).await.is_error(404, "key_not_found", None);
        desk.get(&format!("{KEYS}?after={id}")).await.is_error(400, "invalid_value", Some("after"));
    }
    let unknown_group = "grp_00000000000070008000000000000000".to_owned();
    for group in [&team.other, &unknown_group] {
        let keys = format!("{GROUPS}/{group}/keys");
        desk.get(&keys).await.is_error(404, "group_not_found", None);
        let revoke = format!("{GROUPS}/{group}/revoke_keys");
        desk.call(Method::POST, &revoke, "").await.is_error(404, "group_not_found", None);
        let into = json!({"group_id": group}).to_string();
        desk.create(&into).await.is_error(400, "invalid_value", Some("group_id"));
        desk.patch(&team.keys[0], &into).await.is_error(400, "invalid_value", Some("group_id"));
        assert_eq!(desk.ids(&format!("{KEYS}?group_id={group}")).await, set(&[]));
        assert_eq!(desk.ids(&format!("{GENERATIONS}?group_id={group}")).await, set(&[]));
        assert_eq!(desk.get(&format!("{USAGE}?group_id={group}")).await.json["data"], json!([]));
    }
    desk.patch(&team.keys[0], r#"{"group_id":null}"#).await.is_error(403, "group_key_not_allowed", None);
    for (id, bill) in team.keys.iter().zip(&team.bills).skip(2) {
        desk.get(&format!("{GENERATIONS}/{bill}")).await.is_error(404, "generation_not_found", None);
        desk.get(&format!("{GENERATIONS}?after={bill}")).await.is_error(400, "invalid_value", Some("after"));
        assert_eq!(desk.ids(&format!("{GENERATIONS}?key_id={id}")).await, set(&[]));
        assert_eq!(desk.get(&format!("{USAGE}?key_id={id}")).await.json["data"], json!([]));
    }
    assert_eq!(team.desk.everything().await, before);
}

#[tokio::test]
async fn a_key_of_a_group_sees_and_governs_the_keys_of_the_group_and_its_child_groups() {
    let team = Team::open().await;
    let desk = team.with(Scope::Full, Some(&team.own)).await;
    let [in_own, in_child, ..] = &team.keys;
    assert_eq!(desk.ids(KEYS).await, set(&[in_own, in_child]));
    assert_eq!(desk.ids(&format!("{KEYS}?group_id={}", team.child)).await, set(&[in_child]));
    assert_eq!(desk.ids(&format!("{KEYS}?after={in_child}&limit=5")).await, set(&[in_own]));
    assert_eq!(desk.ids(&format!("{GROUPS}/{}/keys", team.child)).await, set(&[in_child]));
    assert_eq!(desk.ids(GENERATIONS).await, set(&[&team.bills[0], &team.bills[1]]));
    let ascending = format!("{GENERATIONS}?order=asc&after={}", team.bills[0]);
    assert_eq!(desk.ids(&ascending).await, set(&[&team.bills[1]]));
    assert_eq!(desk.get(&format!("{GENERATIONS}/{}", team.bills[1])).await.status, 200);
    let of = |groups: &[&String]| json!(groups.iter().map(|group| json!(group)).collect::<Vec<_>>());
    let usage = desk.get(&format!("{USAGE}?group_by=group")).await.json;
    let groups: Vec<Value> =
        usage["data"].as_array().unwrap().iter().map(|line| line["group_id"].clone()).collect();
    assert_eq!(json!(groups), of(&[&team.own, &team.child]));
    for query in ["group_by=hour,group", "group_by=hour,group,key,model", "group_by=day,hour,key"] {
        let usage = desk.get(&format!("{USAGE}?{query}")).await.json;
        let requests =
            usage["data"].as_array().unwrap().iter().map(|line| line["requests"].as_u64().unwrap());
        assert_eq!(requests.sum::<u64>(), 2, "{query}: {usage}");
    }
    for query in
        ["group_by=user".to_owned(), "group_by=day,user".to_owned(), format!("group_by=user&key_id={in_own}")]
    {
        desk.get(&format!("{USAGE}?{query}")).await.is_error(400, "invalid_value", Some("group_by"));
    }
    // A new key is put into the caller's group, unless the request names another group that the caller can reach.
    for (body, group) in [
        ("{}".to_owned(), &team.own),
        (r#"{"group_id":null}"#.to_owned(), &team.own),
        (json!({"group_id": team.own}).to_string(), &team.own),
        (json!({"group_id": team.child}).to_string(), &team.child),
    ] {
        assert_eq!(desk.created(&body).await["group_id"], **group, "{body}");
    }
    let moved = desk.patch(in_own, &json!({"group_id": team.child, "label": "moved"}).to_string()).await;
    assert_eq!((moved.status.as_u16(), &moved.json["group_id"]), (200, &json!(team.child)));
    assert_eq!(desk.delete(in_child).await.json["status"], "revoked");
    // A management key of the child group reaches neither the parent nor its keys.
    let lower = team.with(Scope::Read, Some(&team.child)).await;
    assert!(lower.ids(KEYS).await.is_superset(&set(&[in_own, in_child])));
    lower.get(&format!("{GROUPS}/{}/keys", team.own)).await.is_error(404, "group_not_found", None);
    assert_eq!(lower.ids(GENERATIONS).await, set(&[&team.bills[1]]), "history stays where it was paid");
}

#[tokio::test]
async fn keys_of_many_child_groups_are_listed_in_order_and_by_pages() {
    let team = Team::open().await;
    let desk = team.with(Scope::Read, Some(&team.own)).await;
    let mut expected = team.keys[..2].to_vec();
    for children in [1, 30] {
        for _ in 0..children {
            let child = team.desk.group(&json!({"parent_id": team.own}).to_string()).await;
            let child = child.rsplit('/').next().unwrap();
            expected.push(team.desk.created_id(&json!({"group_id": child}).to_string()).await);
            team.desk.created_id("{}").await;
        }
        assert_eq!(ids_in(&desk.get(&format!("{KEYS}?order=asc")).await), (expected.clone(), false));
        let page = desk.get(&format!("{KEYS}?limit=2&order=asc&after={}", expected[0])).await;
        assert_eq!(ids_in(&page), (expected[1..3].to_vec(), expected.len() > 3));
        let newest: Vec<String> = expected.iter().rev().take(2).cloned().collect();
        assert_eq!(ids_in(&desk.get(&format!("{KEYS}?limit=2")).await), (newest, true));
    }
}

#[tokio::test]
async fn a_replay_shows_no_key_that_has_left_the_group() {
    let team = Team::open().await;
    let desk = team.with(Scope::Full, Some(&team.own)).await;
    let create = async || {
        let request = desk.request(Method::POST, KEYS).header("idempotency-key", "once");
        desk.send(request.body(Body::from("{}")).unwrap()).await
    };
    let id = id_of(&create().await.json);
    assert_eq!(id_of(&create().await.json), id);
    team.desk.patch(&id, r#"{"group_id":null}"#).await;
    create().await.is_error(409, "idempotency_key_reuse", None);
}

#[tokio::test]
async fn idempotency_keys_are_apart_by_the_group_of_the_management_key() {
    let team = Team::open().await;
    let (own, other) = (&team.own, &team.other);
    let (ours, theirs) = (team.with(Scope::Full, Some(own)).await, team.with(Scope::Full, Some(other)).await);
    let made = [ours.once(KEYS, "once", "{}").await, theirs.once(KEYS, "once", "{}").await];
    let whole = team.desk.once(KEYS, "once", r#"{"label":"of the account"}"#).await;
    for answer in made.iter().chain([&whole]) {
        assert!(
            answer.status == 201 && answer.headers.get("idempotent-replayed").is_none(),
            "{}",
            answer.text
        );
    }
    let again = team.with(Scope::Full, Some(own)).await.once(KEYS, "once", "{}").await;
    assert!(again.headers.get("idempotent-replayed").is_some(), "another management key of the group");
    assert_eq!(id_of(&again.json), id_of(&made[0].json));
    let rotate = |desk: &Desk, id: &str| {
        let (path, desk) = (format!("{KEYS}/{id}/rotate"), Desk::of(desk));
        async move { desk.once(&path, "turn", "{}").await.status.as_u16() }
    };
    assert_eq!(rotate(&ours, &id_of(&made[0].json)).await, 200);
    assert_eq!(rotate(&theirs, &id_of(&made[1].json)).await, 200);
}

#[tokio::test]
async fn a_cursor_tells_a_groups_management_key_nothing_of_what_exists_elsewhere() {
    let team = Team::open().await;
    let desk = team.with(Scope::Full, Some(&team.own)).await;
    let foreign = team.desk.created_id("{}").await;
    let unknown = "ak_00000000000070008000000000000000";
    let bill = team.desk.bill(&foreign, 7).await;
    let no_bill = "gen_00000000000070008000000000000000";
    for (path, cursors) in [
        (KEYS.to_owned(), [foreign.as_str(), unknown]),
        (format!("{GROUPS}/{}/keys", team.own), [foreign.as_str(), unknown]),
        (GENERATIONS.to_owned(), [bill.as_str(), no_bill]),
    ] {
        let [answer, expected] = cursors.map(|cursor| format!("{path}?after={cursor}"));
        let (answer, expected) = (desk.get(&answer).await, desk.get(&expected).await);
        expected.is_error(400, "invalid_value", Some("after"));
        assert_eq!((answer.status, answer.text), (expected.status, expected.text), "{path}");
    }
}

#[tokio::test]
async fn an_archived_group_can_still_be_looked_at() {
    let team = Team::open().await;
    let desk = team.with(Scope::Full, Some(&team.own)).await;
    team.desk.call(Method::DELETE, &format!("{GROUPS}/{}", team.own), "").await;
    assert_eq!(desk.ids(KEYS).await.len(), 2);
    desk.create("{}").await.is_error(409, "group_archived", Some("group_id"));
    assert_eq!(desk.patch(&team.keys[0], r#"{"label":"x"}"#).await.status, 200);
    assert_eq!(desk.delete(&team.keys[0]).await.json["status"], "revoked");
}

#[tokio::test]
async fn a_management_key_expires_at_its_time() {
    let desk = Desk::open().await;
    let expires_at = Timestamp::parse("2026-11-21T00:00:00Z");
    let lent = desk.with_key(ManagementKeySettings { expires_at, ..ManagementKeySettings::full("x") }).await;
    desk.office.clock.set("2026-11-20T23:59:59.999Z");
    assert_eq!(lent.get(KEYS).await.status, 200);
    desk.office.clock.set("2026-11-21T00:00:00Z");
    let refused = lent.get(KEYS).await;
    refused.is_error(401, "key_expired", None);
    assert_eq!(refused.headers["www-authenticate"], r#"Bearer realm="api", error="invalid_token""#);
    lent.create("{}").await.is_error(401, "key_expired", None);
    lent.get(OWN_KEY).await.is_error(403, "management_key_not_allowed", None);
    assert_eq!(desk.get(KEYS).await.status, 200);
}

#[tokio::test]
async fn the_last_use_of_a_management_key_is_recorded_once_a_minute() {
    let desk = Desk::open().await;
    let used = async || desk.used().await.map(|at| at.to_string());
    assert_eq!(used().await.as_deref(), Some("2026-11-20T02:11:05Z"));
    desk.office.clock.set("2026-11-20T02:12:04.999Z");
    assert_eq!(used().await.as_deref(), Some("2026-11-20T02:11:05Z"));
    desk.office.clock.set("2026-11-20T02:12:05Z");
    assert_eq!(used().await.as_deref(), Some("2026-11-20T02:12:05Z"));
    let other = desk.with_key(ManagementKeySettings::full("other")).await;
    desk.office.clock.set("2026-11-20T02:20:00Z");
    other.used().await;
    let keys = desk.office.management.management_keys(desk.account).await.unwrap();
    let last_uses = keys.iter().map(|key| key.last_used_at.unwrap().to_string());
    assert_eq!(last_uses.collect::<Vec<_>>(), ["2026-11-20T02:12:05Z", "2026-11-20T02:20:00Z"]);
}
