use super::*;

const URL: &str = "https://hooks.example/faregate";

#[tokio::test]
async fn a_webhook_is_made_with_a_secret_shown_changed_and_removed() {
    let desk = Desk::open().await;
    let made =
        desk.call(Method::POST, WEBHOOKS, format!(r#"{{"url":"{URL}","types":["key.revoked"]}}"#)).await;
    let id = id_of(&made.json);
    let path = format!("{WEBHOOKS}/{id}");
    assert_eq!((made.status.as_u16(), made.headers["location"].to_str().unwrap()), (201, path.as_str()));
    let secret = made.json["secret"].as_str().unwrap();
    assert!(secret.starts_with("whsec_") && secret.len() == 50, "{secret}");
    let shown = desk.get(&path).await;
    let expected = format!(
        r#"{{"id":"{id}","object":"webhook","url":"{URL}","types":["key.revoked"],"enabled":true,"created_at":"2026-11-20T02:11:05Z","disabled_at":null,"disabled_reason":null}}"#
    );
    assert_eq!(shown.text, expected);
    assert_eq!(ids_in(&desk.get(WEBHOOKS).await), (vec![id.clone()], false));
    let change = r#"{"url":"http://127.0.0.1:9/x","types":null,"enabled":false}"#;
    let changed = desk.call(Method::PATCH, &path, change).await;
    assert_eq!(changed.status, 200, "{}", changed.text);
    let json = &changed.json;
    assert_eq!(
        (&json["url"], &json["types"], &json["enabled"]),
        (&json!("http://127.0.0.1:9/x"), &json!(null), &json!(false))
    );
    assert_eq!(
        (&json["disabled_at"], &json["disabled_reason"]),
        (&json!("2026-11-20T02:11:05.678Z"), &json!("owner"))
    );
    assert_eq!(
        desk.call(Method::PATCH, &path, "{}").await.text,
        changed.text,
        "nothing asked, nothing changed"
    );
    let enabled = desk.call(Method::PATCH, &path, r#"{"enabled":true}"#).await;
    assert_eq!((&enabled.json["enabled"], &enabled.json["disabled_at"]), (&json!(true), &json!(null)));
    assert_eq!(desk.call(Method::DELETE, &path, "").await.text, enabled.text);
    desk.call(Method::DELETE, &path, "").await.is_error(404, "webhook_not_found", None);
    assert_eq!(ids_in(&desk.get(WEBHOOKS).await), (Vec::new(), false));
}

#[tokio::test]
async fn what_cannot_be_a_webhook_is_refused() {
    let desk = Desk::open().await;
    desk.call(Method::POST, WEBHOOKS, "{}").await.is_error(400, "missing_required_parameter", Some("url"));
    let made = desk.call(Method::POST, WEBHOOKS, format!(r#"{{"url":"{URL}"}}"#)).await;
    let path = format!("{WEBHOOKS}/{}", id_of(&made.json));
    let long = format!(r#""url":"{URL}/{}""#, "x".repeat(2048));
    for (member, code, param) in [
        (r#""url":null"#, "invalid_type", "url"),
        (r#""url":7"#, "invalid_type", "url"),
        (r#""url":"""#, "invalid_value", "url"),
        (r#""url":"http://hooks.example/""#, "invalid_value", "url"),
        (r#""url":"https://user@hooks.example/""#, "invalid_value", "url"),
        (r#""url":"https://10.0.0.5/""#, "invalid_value", "url"),
        (r#""url":"https://169.254.169.254/latest""#, "invalid_value", "url"),
        (r#""url":"https://[::ffff:127.0.0.1]/""#, "invalid_value", "url"),
        (r#""url":"https://167772161/""#, "invalid_value", "url"),
        (r#""url":"https://0x0a000001/""#, "invalid_value", "url"),
        (r#""url":"https://10.1/""#, "invalid_value", "url"),
        (r#""url":"https://999.999.999.999/""#, "invalid_value", "url"),
        (r#""url":"https://8.8.8.8./""#, "invalid_value", "url"),
        (&long, "string_above_max_length", "url"),
        (r#""types":[]"#, "empty_array", "types"),
        (r#""types":["key.made"]"#, "invalid_value", "types[0]"),
        (r#""types":["key.created","key.created"]"#, "invalid_value", "types[1]"),
        (r#""types":[1]"#, "invalid_type", "types[0]"),
        (r#""types":"key.created""#, "invalid_type", "types"),
        (r#""enabled":null"#, "invalid_type", "enabled"),
        (r#""enabled":"yes""#, "invalid_type", "enabled"),
        (r#""secret":"whsec_x""#, "unknown_parameter", "secret"),
    ] {
        let body = if member.contains("\"url\"") {
            format!("{{{member}}}")
        } else {
            format!(r#"{{"url":"{URL}",{member}}}"#)
        };
        desk.call(Method::POST, WEBHOOKS, body.clone()).await.is_error(400, code, Some(param));
        desk.call(Method::PATCH, &path, body).await.is_error(400, code, Some(param));
    }
    assert_eq!(ids_in(&desk.get(WEBHOOKS).await).0.len(), 1);
}

#[tokio::test]
async fn an_account_has_twenty_webhooks() {
    let desk = Desk::open().await;
    for n in 0..20 {
        desk.call(Method::POST, WEBHOOKS, format!(r#"{{"url":"{URL}/{n}"}}"#)).await;
    }
    let more = desk.call(Method::POST, WEBHOOKS, format!(r#"{{"url":"{URL}"}}"#)).await;
    more.is_error(400, "too_many_webhooks", None);
    assert_eq!(ids_in(&desk.get(WEBHOOKS).await).0.len(), 20);
}

#[tokio::test]
async fn a_test_is_queued() {
    let desk = Desk::open().await;
    let made = desk.call(Method::POST, WEBHOOKS, format!(r#"{{"url":"{URL}"}}"#)).await;
    let id = id_of(&made.json);
    let path = format!("{WEBHOOKS}/{id}");
    let event = desk.call(Method::POST, &format!("{path}/test"), "").await;
    assert_eq!((event.status.as_u16(), &event.json["type"]), (200, &json!("webhook.test")));
    assert_eq!((&event.json["object"], &event.json["data"]), (&json!("event"), &json!({"webhook_id": id})));
    let deliveries = desk.get(&format!("{path}/deliveries")).await;
    assert_eq!(deliveries.json, json!({"object": "list", "data": [], "has_more": false}));
}

#[tokio::test]
async fn a_repetition_makes_no_webhook_in_place_of_one_that_was_removed() {
    let desk = Desk::open().await;
    let body = format!(r#"{{"url":"{URL}"}}"#);
    let first = desk.once(WEBHOOKS, "once", &body).await;
    let path = format!("{WEBHOOKS}/{}", id_of(&first.json));
    assert_eq!(desk.call(Method::DELETE, &path, "").await.status, 200);
    let gone = desk.once(WEBHOOKS, "once", &body).await;
    gone.is_error(404, "webhook_not_found", None);
    assert_eq!(ids_in(&desk.get(WEBHOOKS).await), (Vec::new(), false));
}

#[tokio::test]
async fn a_nearly_full_store_only_disables_and_removes_webhooks() {
    let desk = Desk::open().await;
    let made = desk.call(Method::POST, WEBHOOKS, format!(r#"{{"url":"{URL}"}}"#)).await;
    let path = format!("{WEBHOOKS}/{}", id_of(&made.json));
    desk.office.records.set_nearly_full(true);
    for more in [
        r#"{"url":"https://hooks.example/other"}"#,
        r#"{"enabled":true}"#,
        r#"{"types":["key.created"],"enabled":false}"#,
    ] {
        desk.call(Method::PATCH, &path, more).await.is_error(503, "store_full", None);
    }
    desk.call(Method::POST, &format!("{path}/test"), "").await.is_error(503, "store_full", None);
    assert_eq!(desk.call(Method::PATCH, &path, r#"{"enabled":false}"#).await.status, 200);
    assert_eq!(desk.call(Method::DELETE, &path, "").await.status, 200);
}
