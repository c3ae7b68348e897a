use super::*;
use domain::ledger::{Outcome, Refused};

impl Desk {
    async fn rotate(&self, id: &str, body: &str) -> Answer {
        self.call(Method::POST, &format!("{KEYS}/{id}/rotate"), body.to_owned()).await
    }

    async fn rotate_once(&self, idempotency_key: &str, id: &str, body: &str) -> Answer {
        let request = self.request(Method::POST, &format!("{KEYS}/{id}/rotate"));
        let request = request.header("idempotency-key", idempotency_key);
        self.send(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    /// Creates a key; returns its id and plaintext.
    async fn made(&self) -> (String, String) {
        let key = self.created(r#"{"label":"Customer A","limit":25}"#).await;
        (id_of(&key), plaintext(&key))
    }

    /// Presents this plaintext as the credential, asks for the key that it belongs to, and returns the answer.
    async fn own(&self, plaintext: &str) -> Answer {
        let request = Request::get(OWN_KEY).header("authorization", format!("Bearer {plaintext}"));
        self.send(request.body(Body::empty()).unwrap()).await
    }

    /// Returns the numbers of the key's credentials that the ledger accepts.
    async fn accepted(&self, id: &str) -> Vec<u64> {
        let (key, now) = (id.parse().unwrap(), self.office.clock.now());
        let checks = (0..5).map(|credential| Command::Check { key, credential }).collect();
        let outcomes = self.office.store.execute(self.account, checks, now).await.unwrap();
        let allowed = |outcome: &Result<Outcome, Refused>| outcome.is_ok();
        (0..).zip(&outcomes).filter(|(_, outcome)| allowed(outcome)).map(|(number, _)| number).collect()
    }
}

fn plaintext(key: &Value) -> String {
    key["key"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_rotated_key_is_answered_whole_and_its_new_plaintext_once() {
    let desk = Desk::open().await;
    let (id, old) = desk.made().await;
    let before = desk.get(&format!("{KEYS}/{id}")).await.json;
    assert_eq!(before["previous_key_expires_at"], json!(null));
    let answer = desk.rotate(&id, r#"{"grace_seconds":3600}"#).await;
    assert_eq!((answer.status.as_u16(), answer.headers.get("location")), (200, None), "{}", answer.text);
    let new = plaintext(&answer.json);
    assert!(new.starts_with("fg_api_") && new.len() == 56 && new != old, "{new}");
    let mut expected = before;
    expected["key_hint"] = json!(format!("{}…{}", &new[..11], &new[52..]));
    expected["previous_key_expires_at"] = json!("2026-11-20T03:11:05.678Z");
    let fetched = desk.get(&format!("{KEYS}/{id}")).await.json;
    assert_eq!(fetched, expected);
    expected["key"] = json!(new);
    assert_eq!(answer.json, expected);
    assert!(!desk.everything().await.contains(&new));

    for plaintext in [&old, &new] {
        assert_eq!(desk.own(plaintext).await.json["id"], json!(id));
    }
    desk.office.clock.set("2026-11-20T03:11:05.678Z");
    desk.own(&old).await.is_error(401, "invalid_api_key", None);
    assert_eq!(desk.own(&new).await.json["previous_key_expires_at"], json!(null));
    assert_eq!(desk.accepted(&id).await, [1]);
}

#[tokio::test]
async fn without_a_grace_the_previous_plaintext_ends_at_once() {
    let desk = Desk::open().await;
    for (rotations, body) in
        [(1, ""), (2, "{}"), (3, r#"{"grace_seconds":0,"force":false}"#), (4, r#"{"grace_seconds":-0}"#)]
    {
        let (id, mut old) = desk.made().await;
        for _ in 0..rotations {
            let answer = desk.rotate(&id, body).await;
            assert_eq!(answer.json["previous_key_expires_at"], json!(null), "{body}: {}", answer.text);
            desk.own(&old).await.is_error(401, "invalid_api_key", None);
            old = plaintext(&answer.json);
            assert_eq!(desk.own(&old).await.status, 200);
        }
        assert_eq!(desk.accepted(&id).await, [rotations]);
    }
}

#[tokio::test]
async fn a_plaintext_that_ended_is_an_unknown_one_on_every_route() {
    let desk = Desk::open().await;
    let (id, old) = desk.made().await;
    let new = plaintext(&desk.rotate(&id, "{}").await.json);
    for (presented, status, code) in
        [(&old, 401, "invalid_management_key"), (&new, 403, "management_key_required")]
    {
        let request = Request::get(KEYS).header("authorization", format!("Bearer {presented}"));
        desk.send(request.body(Body::empty()).unwrap()).await.is_error(status, code, None);
    }
}

#[tokio::test]
async fn revoking_ends_both_plaintexts_at_once() {
    let desk = Desk::open().await;
    let (id, old) = desk.made().await;
    let new = plaintext(&desk.rotate(&id, r#"{"grace_seconds":2592000}"#).await.json);
    let revoked = desk.delete(&id).await.json;
    assert_eq!((&revoked["status"], &revoked["previous_key_expires_at"]), (&json!("revoked"), &json!(null)));
    for plaintext in [old, new] {
        desk.own(&plaintext).await.is_error(401, "invalid_api_key", None);
    }
    assert_eq!(desk.accepted(&id).await, [0; 0]);
}

#[tokio::test]
async fn within_a_grace_only_force_rotates_again() {
    let desk = Desk::open().await;
    let (id, first) = desk.made().await;
    let second = plaintext(&desk.rotate(&id, r#"{"grace_seconds":60}"#).await.json);
    let before = desk.everything().await;
    let refused = desk.rotate(&id, r#"{"grace_seconds":60}"#).await;
    refused.is_error(409, "rotation_in_progress", None);
    assert_eq!(refused.headers["x-should-retry"], "false");
    assert_eq!(desk.everything().await, before);
    let forced = desk.rotate(&id, r#"{"grace_seconds":60,"force":true}"#).await;
    let third = plaintext(&forced.json);
    desk.own(&first).await.is_error(401, "invalid_api_key", None);
    for plaintext in [second, third] {
        assert_eq!(desk.own(&plaintext).await.status, 200);
    }
    desk.office.clock.set("2026-11-20T02:12:05.678Z");
    assert_eq!(desk.rotate(&id, "{}").await.status, 200, "the grace is over");
}

#[tokio::test]
async fn what_has_ended_is_not_rotated() {
    let desk = Desk::open().await;
    let (revoked, _) = desk.made().await;
    desk.delete(&revoked).await;
    let expired = desk.created_id(r#"{"expires_at":"2026-11-20T02:11:05Z"}"#).await;
    let before = desk.everything().await;
    for (id, code) in [(&revoked, "key_revoked"), (&expired, "key_expired")] {
        let refused = desk.rotate(id, r#"{"force":true}"#).await;
        refused.is_error(409, code, None);
        assert_eq!(refused.headers["x-should-retry"], "false");
    }
    assert_eq!(desk.everything().await, before);
    desk.patch(&expired, r#"{"expires_at":null}"#).await;
    assert_eq!(desk.rotate(&expired, "{}").await.status, 200);
}

#[tokio::test]
async fn an_idempotency_key_rotates_once() {
    let desk = Desk::open().await;
    let (id, _) = desk.made().await;
    let made = desk.rotate_once("once", &id, r#"{"grace_seconds":60}"#).await;
    assert!(made.headers.get("idempotent-replayed").is_none());
    let replayed = desk.rotate_once("once", &id, r#"{"force":false,"grace_seconds":60}"#).await;
    assert_eq!(
        (replayed.status.as_u16(), &replayed.headers["idempotent-replayed"]),
        (200, &HeaderValue::from_static("true"))
    );
    let mut expected = made.json.clone();
    expected.as_object_mut().unwrap().remove("key");
    assert_eq!(replayed.json, expected);
    for body in [r#"{"grace_seconds":61}"#, r#"{"grace_seconds":60,"force":true}"#] {
        desk.rotate_once("once", &id, body).await.is_error(409, "idempotency_key_reuse", None);
    }
    let (other, _) = desk.made().await;
    let reused = desk.rotate_once("once", &other, r#"{"grace_seconds":60}"#).await;
    reused.is_error(409, "idempotency_key_reuse", None);
    assert_eq!(desk.accepted(&id).await, [0, 1]);
}

#[tokio::test]
async fn wrong_terms_change_nothing() {
    let desk = Desk::open().await;
    let (id, _) = desk.made().await;
    let before = desk.everything().await;
    for (body, code, param) in [
        (r#"{"grace_seconds":-1}"#, "integer_below_min_value", Some("grace_seconds")),
        (r#"{"grace_seconds":2592001}"#, "integer_above_max_value", Some("grace_seconds")),
        (r#"{"grace_seconds":1e3}"#, "invalid_type", Some("grace_seconds")),
        (r#"{"grace_seconds":null}"#, "invalid_type", Some("grace_seconds")),
        (r#"{"grace_seconds":"60"}"#, "invalid_type", Some("grace_seconds")),
        (r#"{"force":1}"#, "invalid_type", Some("force")),
        (r#"{"grace":60}"#, "unknown_parameter", Some("grace")),
        (r#"{"force":true,"force":true}"#, "invalid_json", None),
        ("[]", "invalid_json", None),
    ] {
        desk.rotate(&id, body).await.is_error(400, code, param);
    }
    let wrong = desk.call(Method::GET, &format!("{KEYS}/{id}/rotate"), "").await;
    wrong.is_error(405, "method_not_allowed", None);
    assert_eq!(desk.everything().await, before);
    assert_eq!(desk.accepted(&id).await, [0]);
}

#[tokio::test]
async fn a_store_that_is_nearly_full_rotates_no_key() {
    let desk = Desk::open().await;
    let (id, _) = desk.made().await;
    desk.office.records.set_nearly_full(true);
    desk.rotate_once("once", &id, "{}").await.is_error(503, "store_full", None);
    desk.rotate(&id, "{}").await.is_error(503, "store_full", None);
    assert_eq!(desk.accepted(&id).await, [0]);
    assert_eq!(desk.delete(&id).await.status, 200, "what leaked is revoked");
}
