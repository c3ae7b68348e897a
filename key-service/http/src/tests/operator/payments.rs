//! Payments and refunds: by operators for an account, and by an account for its wallets.

use super::*;

/// Returns a desk whose credential is an operator key that may pay and refund.
async fn cashier(desk: &Desk) -> Desk {
    desk.operator(&[OperatorScope::Credit]).await
}

/// Returns the id at the end of an object's path.
fn id_in(path: &str) -> String {
    path.rsplit('/').next().unwrap().to_owned()
}

async fn credit(desk: &Desk) -> Value {
    desk.get(CREDITS).await.json["credit"].clone()
}

async fn events(desk: &Desk) -> Vec<(String, Value)> {
    let listed = desk.get(&format!("{EVENTS}?order=asc")).await.json;
    let events = listed["data"].as_array().unwrap().iter();
    let money = events.filter(|event| {
        let kind = event["type"].as_str().unwrap();
        matches!(kind.split_once('.'), Some(("credit", _) | (_, "paid" | "refunded")))
    });
    money.map(|event| (event["type"].as_str().unwrap().to_owned(), event["data"].clone())).collect()
}

#[tokio::test]
async fn a_payment_raises_credit_and_wallet_once_and_answers_the_same_again() {
    let desk = Desk::open().await;
    let (cashier, path) = (cashier(&desk).await, account_path(&desk));
    let group = id_in(&desk.group(r#"{"external_id": "cus 1/é", "limit": 3}"#).await);
    let before = credit(&desk).await;
    let payment =
        json!({"payment_id": "pay 1/7", "amount": 12.5, "note": "May", "group_external_id": "cus 1/é"});
    let first = cashier.post(&format!("{path}/payments"), &payment).await;
    let id = first.json["id"].as_str().unwrap().to_owned();
    let expected = json!({
        "id": id, "object": "payment", "payment_id": "pay 1/7", "amount": 12.5, "note": "May", "group_id": group,
        "credit_after": 12.5 + before.as_f64().unwrap(), "group_limit_after": 15.5,
        "created_at": first.json["created_at"],
    });
    assert_eq!((first.status.as_u16(), &first.json), (201, &expected));
    desk.office.clock.set("2026-11-21T02:11:05Z");
    let by_id = json!({"payment_id": "pay 1/7", "amount": 12.50, "note": "other", "group_id": group});
    for again in [&payment, &by_id] {
        let again = cashier.post(&format!("{path}/payments"), again).await;
        assert_eq!((again.status.as_u16(), &again.json), (200, &expected));
    }
    let found = cashier.get(&format!("{path}/payments/pay%201%2F7")).await;
    assert_eq!((found.status.as_u16(), &found.json), (200, &expected));
    cashier.get(&format!("{path}/payments/pay_2")).await.is_error(404, "payment_not_found", None);
    let shown = desk.get(&format!("{GROUPS}/{group}")).await.json;
    assert_eq!((&shown["limit"], &shown["paid"]), (&json!(15.5), &json!(12.5)));
    let patched = desk.call(Method::PATCH, &format!("{GROUPS}/{group}"), r#"{"limit": 16}"#).await;
    patched.is_error(409, "group_limit_is_paid", Some("limit"));
    assert_eq!(patched.headers["x-should-retry"], "false");
    let same =
        desk.call(Method::PATCH, &format!("{GROUPS}/{group}"), r#"{"limit": 15.5, "name": "x"}"#).await;
    assert_eq!(same.status, 200, "{}", same.text);
    let differs = json!({"payment_id": "pay 1/7", "amount": 12.5});
    let differs = cashier.post(&format!("{path}/payments"), &differs).await;
    differs.is_error(409, "payment_differs", Some("payment_id"));
    let says = differs.json["error"]["message"].as_str().unwrap();
    assert!(says.contains("12.5 USD") && says.contains(&group), "{says}");
    let told = events(&desk).await;
    let (kind, data) = told.last().unwrap();
    assert_eq!(
        (kind.as_str(), &data["payment_id"], &data["group_id"]),
        ("credit.added", &json!("pay 1/7"), &json!(group))
    );
}

#[tokio::test]
async fn a_refund_takes_what_is_there_and_says_what_was_missing() {
    let desk = Desk::open().await;
    let (cashier, path) = (cashier(&desk).await, account_path(&desk));
    let refunds = format!("{path}/refunds");
    let refund = |more: Value| {
        let mut body = json!({"payment_id": "re_1", "amount": 900, "of": "pay_1"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let early = cashier.post(&refunds, &refund(json!({}))).await;
    early.is_error(404, "payment_not_found", Some("of"));
    cashier.post(&format!("{path}/payments"), &json!({"payment_id": "pay_1", "amount": 5})).await;
    let had = json!(15);
    assert_eq!(credit(&desk).await, had);
    let too_low = cashier.post(&refunds, &refund(json!({"partial": false}))).await;
    too_low.is_error(409, "credit_too_low", Some("amount"));
    let says = too_low.json["error"]["message"].as_str().unwrap();
    assert!(says.contains(&format!("{had} USD")), "{says}");
    assert_eq!(credit(&desk).await, had);
    let first = cashier.post(&refunds, &refund(json!({"partial": true, "note": "chargeback"}))).await;
    assert_eq!(first.status, 201, "{}", first.text);
    let shown =
        ["object", "amount", "taken", "shortfall", "of", "credit_after"].map(|name| &first.json[name]);
    assert_eq!(shown, [&json!("refund"), &json!(900), &had, &json!(885), &json!("pay_1"), &json!(0)]);
    let again = cashier.post(&refunds, &refund(json!({"partial": true}))).await;
    assert_eq!((again.status.as_u16(), &again.json), (200, &first.json));
    let of_refund = json!({"payment_id": "re_2", "amount": 1, "of": "re_1"});
    cashier.post(&refunds, &of_refund).await.is_error(404, "payment_not_found", Some("of"));
    let as_payment = json!({"payment_id": "re_1", "amount": 900});
    cashier.post(&format!("{path}/payments"), &as_payment).await.is_error(
        409,
        "payment_differs",
        Some("payment_id"),
    );
    let totals = desk.get(CREDITS).await.json;
    assert_eq!(totals["total_deposited"], had);
    assert_eq!((&totals["total_refunded"], &totals["credit"]), (&had, &json!(0)));
    let told: Vec<_> = events(&desk).await.into_iter().map(|(kind, _)| kind).collect();
    let passed = ["credit.threshold_reached", "credit.threshold_reached", "credit.exhausted"];
    let expected: Vec<_> = ["credit.added", "credit.refunded"].into_iter().chain(passed).collect();
    assert_eq!(told[told.len() - 5..], expected);
    let (ids, more) = ids_in(&cashier.get(&format!("{path}/payments?limit=1")).await);
    assert!(more && ids.len() == 1);
    let (rest, more) = ids_in(&cashier.get(&format!("{path}/payments?after={}", ids[0])).await);
    assert!(!more && rest.len() == 1 && rest != ids);
    cashier.get(&format!("{path}/payments?after=dep_0")).await.is_error(400, "invalid_value", Some("after"));
}

#[tokio::test]
async fn a_closed_account_answers_earlier_payments_again_and_takes_no_others() {
    let desk = Desk::open().await;
    let (operator, path) = (desk.operator(&OperatorScope::ALL).await, account_path(&desk));
    let (payments, refunds) = (format!("{path}/payments"), format!("{path}/refunds"));
    let payment = json!({"payment_id": "pay_1", "amount": 5, "note": "May"});
    let everything = json!({"payment_id": "re_1", "amount": 900, "partial": true});
    let paid = operator.post(&payments, &payment).await;
    let refunded = operator.post(&refunds, &everything).await;
    assert_eq!((paid.status.as_u16(), refunded.status.as_u16()), (201, 201));
    operator.post(&format!("{path}/suspend"), &json!({"reason": "left"})).await;
    let closed = operator.call(Method::POST, &format!("{path}/close"), "").await;
    assert_eq!((closed.status.as_u16(), &closed.json["status"]), (200, &json!("closed")), "{}", closed.text);
    for (route, body, first) in [(&payments, &payment, &paid), (&refunds, &everything, &refunded)] {
        let again = operator.post(route, body).await;
        assert_eq!((again.status.as_u16(), &again.json), (200, &first.json));
    }
    let other = json!({"payment_id": "pay_2", "amount": 5});
    operator.post(&payments, &other).await.is_error(409, "account_closed", Some("account"));
    let differs = json!({"payment_id": "pay_1", "amount": 6});
    operator.post(&payments, &differs).await.is_error(409, "payment_differs", Some("payment_id"));
    assert_eq!(operator.get(&path).await.json["credit"], json!(0));
}

#[tokio::test]
async fn an_owner_shares_out_credit_among_wallets_and_makes_none() {
    let desk = Desk::open().await;
    let group = desk.group(r#"{"limit": 0}"#).await;
    let before = credit(&desk).await;
    let pay = json!({"payment_id": "p1", "amount": 4});
    let first = desk.post(&format!("{group}/payments"), &pay).await;
    assert_eq!((first.status.as_u16(), &first.json["group_limit_after"]), (201, &json!(4)), "{}", first.text);
    assert_eq!(desk.post(&format!("{group}/payments"), &pay).await.json, first.json);
    let back = json!({"payment_id": "r1", "amount": 9, "partial": true});
    let back = desk.post(&format!("{group}/refunds"), &back).await;
    assert_eq!((&back.json["taken"], &back.json["shortfall"]), (&json!(4), &json!(5)), "{}", back.text);
    assert_eq!(credit(&desk).await, before);
    let unbounded = desk.group("{}").await;
    let pay = json!({"payment_id": "p2", "amount": 4});
    desk.post(&format!("{unbounded}/payments"), &pay).await.is_error(409, "group_has_no_limit", None);
    desk.call(Method::DELETE, &group, "").await;
    desk.post(&format!("{group}/payments"), &pay).await.is_error(409, "group_archived", None);
    let unknown = format!("{GROUPS}/grp_00000000000000000000000000000001/payments");
    desk.post(&unknown, &pay).await.is_error(404, "group_not_found", None);
    let kinds: Vec<_> = events(&desk).await.into_iter().map(|(kind, _)| kind).collect();
    assert!(kinds.ends_with(&["group.paid".to_owned(), "group.refunded".to_owned()]), "{kinds:?}");
    let operator = desk.operator(&OperatorScope::ALL).await;
    let mirrored = group.replace("/v1/management", &account_path(&desk));
    operator.post(&format!("{mirrored}/payments"), &pay).await.is_error(404, "unknown_url", None);
}

#[tokio::test]
async fn bad_payments_are_refused_by_the_name_of_the_field_and_change_nothing() {
    let desk = Desk::open().await;
    let (cashier, path) = (cashier(&desk).await, account_path(&desk));
    let before = (credit(&desk).await, events(&desk).await);
    let good = json!({"payment_id": "pay_1", "amount": 1});
    for (name, value, code) in [
        ("amount", json!(0), "decimal_below_min_value"),
        ("amount", json!(-1), "decimal_below_min_value"),
        ("amount", json!(9_000_001), "decimal_above_max_value"),
        ("amount", json!("1"), "invalid_type"),
        ("amount", Value::Null, "invalid_type"),
        ("amount", json!(1000.01), "payment_above_maximum"),
        ("payment_id", json!(""), "empty_string"),
        ("payment_id", json!(" pay_1"), "invalid_value"),
        ("payment_id", json!("p\u{e1}y"), "invalid_value"),
        ("payment_id", json!("x".repeat(129)), "string_above_max_length"),
        ("payment_id", Value::Null, "invalid_type"),
        ("note", json!("x".repeat(201)), "string_above_max_length"),
        ("note", json!("a\nb"), "invalid_value"),
        ("group_id", json!("x"), "invalid_value"),
        ("group_external_id", json!("nobody"), "group_not_found"),
        ("partial", json!(true), "unknown_parameter"),
    ] {
        let mut body = good.clone();
        body[name] = value;
        let answer = cashier.post(&format!("{path}/payments"), &body).await;
        let status = if code == "group_not_found" { 404 } else { 400 };
        answer.is_error(status, code, Some(name));
    }
    let group = "grp_00000000000000000000000000000001";
    let elsewhere = json!({"payment_id": "pay_1", "amount": 1, "group_id": group});
    cashier.post(&format!("{path}/payments"), &elsewhere).await.is_error(
        404,
        "group_not_found",
        Some("group_id"),
    );
    let both = json!({"payment_id": "pay_1", "amount": 1, "group_id": group, "group_external_id": "a"});
    let both = cashier.post(&format!("{path}/payments"), &both).await;
    both.is_error(400, "invalid_value", Some("group_external_id"));
    for missing in ["payment_id", "amount"] {
        let mut body = good.clone();
        body.as_object_mut().unwrap().remove(missing);
        for route in ["payments", "refunds"] {
            let answer = cashier.post(&format!("{path}/{route}"), &body).await;
            answer.is_error(400, "missing_required_parameter", Some(missing));
        }
    }
    let of = json!({"payment_id": "re_1", "amount": 1, "of": 7});
    cashier.post(&format!("{path}/refunds"), &of).await.is_error(400, "invalid_type", Some("of"));
    assert_eq!((credit(&desk).await, events(&desk).await), before);
}
