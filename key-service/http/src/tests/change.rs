//! Fetching, updating and revoking keys.

use super::*;

#[tokio::test]
async fn an_expiry_can_be_moved_into_the_past_and_back() {
    let desk = Desk::open().await;
    let id = desk.created_id("{}").await;
    for (expires_at, status) in [
        ("2026-11-20T02:11:05Z", "expired"),
        ("2026-11-20T02:11:06Z", "active"),
        ("2020-01-01T00:00Z", "expired"),
    ] {
        let answer = desk.patch(&id, &format!(r#"{{"expires_at":"{expires_at}"}}"#)).await;
        assert_eq!(answer.json["status"], status);
    }
    assert_eq!(desk.patch(&id, r#"{"expires_at":null}"#).await.json["status"], "active");
}

#[tokio::test]
async fn a_key_is_disabled_and_enabled_again_and_both_are_told() {
    let desk = Desk::open().await;
    let id = desk.created_id(r#"{"expires_at":"2026-11-20T03:00:00Z"}"#).await;
    let other = desk.created_id(r#"{"disabled":true}"#).await;
    let statuses = async || {
        let mut ids = Vec::new();
        for status in ["active", "disabled"] {
            ids.push(desk.get(&format!("{KEYS}?status={status}")).await.json["first_id"].clone());
        }
        ids
    };
    assert_eq!(statuses().await, [json!(id), json!(other)]);
    for (patch, status) in [
        (r#"{"disabled":true}"#, "disabled"),
        (r#"{"disabled":true}"#, "disabled"),
        (r#"{"expires_at":"2020-01-01T00:00Z"}"#, "disabled"),
        (r#"{"disabled":false}"#, "expired"),
        (r#"{"expires_at":null}"#, "active"),
    ] {
        let answer = desk.patch(&id, patch).await;
        assert_eq!((answer.status.as_u16(), &answer.json["status"]), (200, &json!(status)), "{patch}");
        assert_eq!(answer.json["disabled"], json!(status == "disabled"), "{patch}");
        assert_eq!(desk.get(&format!("{KEYS}/{id}")).await.text, answer.text);
    }
    desk.patch(&other, r#"{"disabled":false}"#).await;
    assert_eq!(statuses().await, [json!(other), json!(null)]);
    let events = desk.get(&format!("{EVENTS}?key_id={id}&type=key.updated&order=asc")).await.json;
    let told = |event: &serde_json::Value| event["data"]["changes"].clone();
    let told: Vec<_> = events["data"].as_array().unwrap().iter().map(told).collect();
    let expiry = |before, after| json!({"expires_at": [before, after]});
    let (end, past) = (json!("2026-11-20T03:00:00Z"), json!("2020-01-01T00:00:00Z"));
    let expected = [
        json!({"disabled": [false, true]}),
        expiry(end, past.clone()),
        json!({"disabled": [true, false]}),
        expiry(past, json!(null)),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_key_expires_when_its_time_comes_without_anyone_writing_it_down() {
    let desk = Desk::open().await;
    let id = desk.created_id(r#"{"expires_at":"2026-11-20T03:00:00Z"}"#).await;
    for (now, status) in [("2026-11-20T02:59:59.999Z", "active"), ("2026-11-20T03:00:00Z", "expired")] {
        desk.office.clock.set(now);
        assert_eq!(desk.get(&format!("{KEYS}/{id}")).await.json["status"], status);
    }
}

#[tokio::test]
async fn use_is_shown_exactly_and_what_remains_may_be_negative() {
    let desk = Desk::open().await;
    let id = desk.created_id(r#"{"limit":25}"#).await;
    desk.office.clock.set("2026-11-20T04:05:06.789Z");
    desk.bill(&id, 4_215_000).await;
    let used = desk.get(&format!("{KEYS}/{id}")).await;
    assert!(
        used.text.contains(r#""limit":25,"used":0.004215,"limit_remaining":24.995785,"#),
        "{}",
        used.text
    );
    assert_eq!(used.json["last_used_at"], "2026-11-20T04:05:06Z");
    let lowered = desk.patch(&id, r#"{"limit":0.001}"#).await;
    assert!(
        lowered.text.contains(r#""limit":0.001,"used":0.004215,"limit_remaining":-0.003215,"#),
        "{}",
        lowered.text
    );
}

#[tokio::test]
async fn a_revoked_key_stays_revoked_since_the_first_time() {
    let desk = Desk::open().await;
    let id = desk.created_id(r#"{"label":"a","expires_at":"2020-01-01T00:00Z"}"#).await;
    let first = desk.delete(&id).await;
    assert_eq!((first.status.as_u16(), &first.json["status"]), (200, &json!("revoked")));
    assert_eq!(first.json["revoked_at"], "2026-11-20T02:11:05Z");
    desk.office.clock.set("2026-12-01T00:00:00Z");
    let again = desk.delete(&id).await;
    assert_eq!((again.status.as_u16(), &again.text), (200, &first.text));
    assert_eq!(desk.get(&format!("{KEYS}/{id}")).await.text, first.text);
}

#[tokio::test]
async fn a_revoked_key_cannot_be_changed() {
    let desk = Desk::open().await;
    let id = desk.created_id(r#"{"label":"a"}"#).await;
    desk.delete(&id).await;
    let before = desk.everything().await;
    for patch in ["{}", r#"{"label":"b"}"#, r#"{"expires_at":null}"#] {
        let answer = desk.patch(&id, patch).await;
        answer.is_error(409, "key_revoked", None);
        assert_eq!(answer.headers["x-should-retry"], "false");
    }
    // Errors in the body are reported first.
    desk.patch(&id, r#"{"limit":-1}"#).await.is_error(400, "decimal_below_min_value", Some("limit"));
    assert_eq!(desk.everything().await, before);
}
