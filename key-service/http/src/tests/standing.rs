//! Accounts that operators suspend, restore and close.

use shared::{
    secret::ExposeSecret,
    wire::{ACCOUNTS, OperatorScope},
};

use super::*;
use domain::event::Actor;
use key_service_management::operator_keys::{DEFAULT_MAX_PAYMENT, OperatorKeySettings};

/// Returns a desk whose credential is an operator key, and the path of the desk's account.
async fn operator_of(desk: &Desk) -> (Desk, String) {
    let settings = OperatorKeySettings {
        name: "billing".into(),
        scopes: vec![OperatorScope::Accounts],
        expires_at: None,
        networks: None,
        max_payment: DEFAULT_MAX_PAYMENT,
    };
    let key = desk.office.management.create_operator_key(settings, Actor::System).await.unwrap();
    let operator = Desk { credential: key.expose_secret().to_owned(), ..Desk::of(desk) };
    (operator, format!("{ACCOUNTS}/{}", desk.account))
}

async fn post(desk: &Desk, path: &str, body: &str) -> Answer {
    desk.call(Method::POST, path, body.to_owned()).await
}

/// Spends the whole credit of the account, through this key.
async fn spend_all(desk: &Desk, key: &str) {
    let credit = desk.office.management.funds(desk.account).await.unwrap().unwrap().credit;
    desk.bill(key, credit.nanos()).await;
}

#[tokio::test]
async fn in_a_suspended_account_keys_are_refused_and_management_keys_only_read() {
    let desk = Desk::open().await;
    let (operator, path) = operator_of(&desk).await;
    let made = desk.created("{}").await;
    let holder = Desk { credential: made["key"].as_str().unwrap().to_owned(), ..Desk::of(&desk) };
    assert_eq!(holder.get(OWN_KEY).await.status, 200);
    for bad in ["{}", r#"{"reason":""}"#, r#"{"reason":" x"}"#, r#"{"reason":7}"#, r#"{"why":"x"}"#] {
        let refused = post(&operator, &format!("{path}/suspend"), bad).await;
        assert_eq!(refused.status, 400, "{bad}: {}", refused.text);
    }
    assert_eq!(operator.get(&path).await.json["status"], "active");
    let suspended = post(&operator, &format!("{path}/suspend"), r#"{"reason":"unpaid"}"#).await;
    assert_eq!(suspended.status, 200, "{}", suspended.text);
    let shown = |field: &str| suspended.json[field].clone();
    assert_eq!((shown("status"), shown("suspended_reason")), (json!("suspended"), json!("unpaid")));
    assert_eq!((shown("suspended_at"), shown("closed_at")), (json!("2026-11-20T02:11:05Z"), Value::Null));
    desk.office.clock.set("2026-11-20T02:12:00Z");
    let again = post(&operator, &format!("{path}/suspend"), r#"{"reason":"other"}"#).await;
    assert_eq!(again.json, suspended.json, "a repetition changes nothing");
    holder.get(OWN_KEY).await.is_error(401, "account_suspended", None);
    let before = desk.everything().await;
    for (method, path) in [
        (Method::POST, KEYS.to_owned()),
        (Method::PATCH, format!("{KEYS}/{}", id_of(&made))),
        (Method::DELETE, format!("{KEYS}/{}", id_of(&made))),
        (Method::POST, GROUPS.to_owned()),
        (Method::POST, WEBHOOKS.to_owned()),
        (Method::POST, ALERTS.to_owned()),
    ] {
        desk.call(method, &path, "{}").await.is_error(403, "account_suspended", None);
    }
    assert_eq!(desk.everything().await, before);
    let keys = format!("{path}/keys");
    assert_eq!(post(&operator, &keys, r#"{"label":"by an operator"}"#).await.status, 201);
    let listed = |status: &str| format!("{ACCOUNTS}?status={status}");
    assert_eq!(ids_in(&operator.get(&listed("suspended")).await).0, [desk.account.to_string()]);
    assert!(ids_in(&operator.get(&listed("active")).await).0.is_empty());
    operator.get(&listed("gone")).await.is_error(400, "invalid_value", Some("status"));
    for _ in 0..2 {
        let restored = post(&operator, &format!("{path}/restore"), "").await;
        assert_eq!((restored.status.as_u16(), &restored.json["status"]), (200, &json!("active")));
    }
    assert_eq!(holder.get(OWN_KEY).await.status, 200);
    assert_eq!(desk.create("{}").await.status, 201);
    let events = desk.get(EVENTS).await.json;
    let told = |kind: &str| {
        let all = events["data"].as_array().unwrap().iter();
        all.filter(|event| event["type"] == kind).cloned().collect::<Vec<_>>()
    };
    let (suspensions, restorations) = (told("account.suspended"), told("account.restored"));
    assert_eq!((suspensions.len(), restorations.len()), (1, 1), "{events}");
    assert_eq!(suspensions[0]["data"], json!({"reason": "unpaid"}));
    assert_eq!(suspensions[0]["actor"]["type"], "operator_key");
}

#[tokio::test]
async fn a_closed_account_answers_nobody_but_operators_who_read() {
    let desk = Desk::open().await;
    let (operator, path) = operator_of(&desk).await;
    let made = desk.created("{}").await;
    let key = id_of(&made);
    let holder = Desk { credential: made["key"].as_str().unwrap().to_owned(), ..Desk::of(&desk) };
    let close = format!("{path}/close");
    post(&operator, &close, "").await.is_error(409, "account_not_suspended", None);
    post(&operator, &format!("{path}/suspend"), r#"{"reason":"left"}"#).await;
    let refused = post(&operator, &close, "").await;
    refused.is_error(409, "account_has_money", None);
    let credit = operator.get(&path).await.json["credit"].to_string();
    assert!(refused.text.contains(&credit) && refused.headers["x-should-retry"] == "false");
    post(&operator, &format!("{path}/restore"), "").await;
    spend_all(&desk, &key).await;
    post(&operator, &format!("{path}/suspend"), r#"{"reason":"left"}"#).await;
    let closed = post(&operator, &close, "").await;
    assert_eq!((closed.status.as_u16(), &closed.json["status"]), (200, &json!("closed")), "{}", closed.text);
    assert_eq!(post(&operator, &close, "").await.json, closed.json, "a repetition changes nothing");
    holder.get(OWN_KEY).await.is_error(401, "account_closed", None);
    desk.get(KEYS).await.is_error(401, "account_closed", None);
    desk.create("{}").await.is_error(401, "account_closed", None);
    for (route, body) in [
        ("suspend", r#"{"reason":"x"}"#),
        ("restore", ""),
        ("keys", "{}"),
        ("management_keys", r#"{"name":"x"}"#),
        ("members", r#"{"name":"x"}"#),
    ] {
        post(&operator, &format!("{path}/{route}"), body).await.is_error(409, "account_closed", None);
    }
    let metadata = operator.call(Method::PATCH, &path, r#"{"metadata":{"a":"b"}}"#).await;
    metadata.is_error(409, "account_closed", None);
    for read in ["generations", "events", "keys", "credits"] {
        assert_eq!(operator.get(&format!("{path}/{read}")).await.status, 200, "{read}");
    }
    let bills = operator.get(&format!("{path}/generations")).await;
    assert_eq!(bills.json["data"].as_array().unwrap().len(), 1);
}
