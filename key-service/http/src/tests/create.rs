//! Creating keys.

use super::*;
use key_service_management::testing::BEGIN;

#[tokio::test]
async fn a_key_is_answered_whole_and_its_plaintext_once() {
    let desk = Desk::open().await;
    let body = r#"{"label":"Customer A","limit":25,"expires_at":"2027-12-31T23:59:59Z"}"#;
    let answer = desk.create(body).await;
    let (id, key) = (id_of(&answer.json), answer.json["key"].as_str().unwrap().to_owned());
    assert_eq!(answer.status, 201);
    assert_eq!(answer.headers["location"], format!("{KEYS}/{id}"));
    assert_eq!(answer.headers["cache-control"], "no-store");
    assert!(key.starts_with("fg_api_") && key.len() == 56, "{key}");
    let hint = format!("{}…{}", &key[..11], &key[52..]);
    let object = format!(
        r#"{{"id":"{id}","object":"api_key","label":"Customer A","key_hint":"{hint}","status":"active","limit":25,"used":0,"limit_remaining":25,"limit_raised":null,"limits":null,"models":null,"requests_per_minute":null,"tokens_per_minute":null,"max_in_flight":null,"created_at":"2026-11-20T02:11:05Z","expires_at":"2027-12-31T23:59:59Z","disabled":false,"last_used_at":null,"revoked_at":null,"previous_key_expires_at":null,"group_id":null,"metadata":{{}}"#
    );
    assert_eq!(answer.text, format!(r#"{object},"key":"{key}"}}"#));
    let fetched = desk.get(&format!("{KEYS}/{id}")).await;
    assert_eq!((fetched.status.as_u16(), fetched.text), (200, format!("{object}}}")));
}

#[tokio::test]
async fn a_body_without_a_type_is_read_as_json_and_a_charset_is_no_matter() {
    let desk = Desk::open().await;
    for content_type in [None, Some("application/json; charset=utf-8"), Some("Application/JSON")] {
        let mut request = desk.request(Method::POST, KEYS);
        let headers = request.headers_mut().unwrap();
        headers.remove("content-type");
        headers.extend(content_type.map(|v| (header::CONTENT_TYPE, HeaderValue::from_static(v))));
        assert_eq!(desk.send(request.body(Body::from("{}")).unwrap()).await.status, 201);
    }
}

#[tokio::test]
async fn a_label_has_at_most_80_code_points() {
    let desk = Desk::open().await;
    for label in ["é".repeat(80), "🦀".repeat(80), "a \\\" \\u00e9".into()] {
        let key = desk.created(&format!(r#"{{"label":"{label}"}}"#)).await;
        let expected: Value = serde_json::from_str(&format!("\"{label}\"")).unwrap();
        assert_eq!(key["label"], expected);
    }
}

#[tokio::test]
async fn a_limit_is_read_exactly_and_echoed_in_plain_decimals() {
    let desk = Desk::open().await;
    for (limit, echoed) in [
        ("25", "25"),
        ("25.0", "25"),
        ("2.5e1", "25"),
        ("0", "0"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("1000000", "1000000"),
        ("1e6", "1000000"),
        ("1000000.0000000001", "1000000"),
        ("0.1", "0.1"),
        ("0.000000001", "0.000000001"),
        ("1e-9", "0.000000001"),
        ("0.0000000015", "0.000000002"),
        ("0.0000000025", "0.000000002"),
        ("999999.999999999", "999999.999999999"),
        ("0.30000000000000004", "0.3"),
    ] {
        let answer = desk.create(&format!(r#"{{"limit":{limit}}}"#)).await;
        assert_eq!(answer.status, 201, "{limit}: {}", answer.text);
        let written = format!(r#""limit":{echoed},"used":0,"limit_remaining":{echoed},"#);
        assert!(answer.text.contains(&written), "{limit}: {}", answer.text);
    }
}

#[tokio::test]
async fn an_expiry_is_echoed_in_utc_and_a_past_one_makes_a_key_that_is_born_expired() {
    let desk = Desk::open().await;
    for (expires_at, echoed, status) in [
        ("2027-12-31T23:59:59+02:00", "2027-12-31T21:59:59Z", "active"),
        ("2027-12-31t23:59z", "2027-12-31T23:59:00Z", "active"),
        ("2027-12-31 23:59:59.123456", "2027-12-31T23:59:59.123Z", "active"),
        (BEGIN, BEGIN, "expired"),
        ("2026-11-20T02:11:05.679Z", "2026-11-20T02:11:05.679Z", "active"),
        ("2001-01-01T00:00:00Z", "2001-01-01T00:00:00Z", "expired"),
    ] {
        let key = desk.created(&format!(r#"{{"expires_at":"{expires_at}"}}"#)).await;
        assert_eq!((&key["expires_at"], &key["status"]), (&json!(echoed), &json!(status)), "{expires_at}");
    }
}

#[tokio::test]
async fn an_account_with_as_many_keys_as_it_may_have_is_refused_another_one() {
    let desk = Desk::open().await;
    let Office { store, clock, credentials, .. } = &desk.office;
    let management = Management::new(store.clone(), clock.clone(), credentials.clone()).with_max_keys(2);
    let desk = Desk {
        app: router(Arc::new(management), clock.clone(), internal_token(), None, Router::new()),
        ..desk
    };
    let first = desk.created_id("{}").await;
    desk.created_id("{}").await;
    desk.delete(&first).await;
    let before = desk.everything().await;
    let refused = desk.create("{}").await;
    refused.is_error(400, "too_many_keys", None);
    assert!(refused.text.contains("2 API keys"), "{}", refused.text);
    assert_eq!(desk.everything().await, before);
}

#[tokio::test]
async fn a_store_that_is_nearly_full_takes_no_new_keys_and_goes_on_with_those_it_has() {
    let desk = Desk::open().await;
    let id = desk.created_id("{}").await;
    let before = desk.everything().await;
    desk.office.records.set_nearly_full(true);
    let refused = desk.create("{}").await;
    refused.is_error(503, "store_full", None);
    desk.once(KEYS, "once", "{}").await.is_error(503, "store_full", None);
    assert_eq!(desk.everything().await, before);
    desk.patch(&id, r#"{"label":"a longer one"}"#).await.is_error(503, "store_full", None);
    // Even a full store accepts a lower limit.
    assert_eq!(desk.patch(&id, r#"{"limit":5,"requests_per_minute":9}"#).await.status, 200);
    assert_eq!(desk.patch(&id, r#"{"limit":4}"#).await.status, 200);
    assert_eq!(desk.patch(&id, r#"{"label":"","limit":4}"#).await.status, 200, "nothing changes");
    for more in [
        r#"{"limit":4.5}"#,
        r#"{"limit":null}"#,
        r#"{"limit":3,"label":"x"}"#,
        r#"{"models":["Model Flash"]}"#,
        r#"{"metadata":{"a":"b"}}"#,
        r#"{"requests_per_minute":null}"#,
    ] {
        desk.patch(&id, more).await.is_error(503, "store_full", None);
    }
    assert_eq!(desk.get(&format!("{KEYS}/{id}")).await.json["limit"], 4);
    assert_eq!(desk.patch(&id, r#"{"disabled":true}"#).await.status, 200);
    desk.patch(&id, r#"{"disabled":false}"#).await.is_error(503, "store_full", None);
    desk.patch("ak_00000000000070008000000000000000", r#"{"label":"x"}"#).await.is_error(
        404,
        "key_not_found",
        None,
    );
    assert_eq!(desk.delete(&id).await.status, 200);
    desk.patch(&id, r#"{"label":"x"}"#).await.is_error(409, "key_revoked", None);
    desk.office.records.set_nearly_full(false);
    assert_eq!(desk.once(KEYS, "once", "{}").await.status, 201);
}
