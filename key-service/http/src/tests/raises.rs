//! Limits that are raised until a given time.

use super::*;

/// A minute after the start time of all tests.
const UNTIL: &str = "2026-11-20T02:12:05Z";
const BEFORE: &str = "2026-11-20T02:12:04.999Z";

/// Returns a raise until [`UNTIL`], as JSON.
fn raise(amount: &str) -> String {
    format!(r#"{{"amount":{amount},"until":"{UNTIL}"}}"#)
}

/// Creates a key and a group with these members, and returns their paths.
async fn both(desk: &Desk, members: &str) -> [String; 2] {
    let key = desk.created_id(members).await;
    [format!("{KEYS}/{key}"), desk.group(members).await]
}

#[tokio::test]
async fn a_raise_is_shown_until_it_ends_and_what_is_left_is_of_the_bound_in_force() {
    let desk = Desk::open().await;
    let members = format!(
        r#"{{"limit":10,"limit_raised":{},"limits":[{{"amount":5,"per":"month","raised":{}}},{{"amount":4,"per":"hour","raised":null}}]}}"#,
        raise("20"),
        raise("1.5e1")
    );
    for path in both(&desk, &members).await {
        let raised = desk.get(&path).await;
        let until = |amount| json!({"amount": amount, "until": UNTIL});
        assert_eq!((&raised.json["limit"], &raised.json["limit_remaining"]), (&json!(10), &json!(20)));
        assert_eq!(raised.json["limit_raised"], until(20));
        let month = &raised.json["limits"][0];
        assert_eq!((&month["amount"], &month["raised"]), (&json!(5), &until(15)));
        assert_eq!((&month["used"], &month["remaining"]), (&json!(0), &json!(15)));
        assert_eq!(raised.json["limits"][1]["raised"], json!(null));
        desk.office.clock.set(BEFORE);
        assert_eq!(desk.get(&path).await.json, raised.json);
        desk.office.clock.set(UNTIL);
        let over = desk.get(&path).await.json;
        assert_eq!((&over["limit_raised"], &over["limit_remaining"]), (&json!(null), &json!(10)));
        assert_eq!(
            (&over["limits"][0]["raised"], &over["limits"][0]["remaining"]),
            (&json!(null), &json!(5))
        );
        // Nobody ended the raise, so there is no event.
        let named = desk.call(Method::PATCH, &path, "{}").await;
        assert_eq!((named.status.as_u16(), &named.json), (200, &over));
        desk.office.clock.set("2026-11-20T02:11:05Z");
    }
    let events = desk.get(EVENTS).await.json["data"].as_array().unwrap().clone();
    assert_eq!(events.iter().filter(|event| event["type"] == "key.updated").count(), 0);
}

#[tokio::test]
async fn a_raise_is_changed_and_taken_away_with_its_limit_or_alone() {
    let desk = Desk::open().await;
    for path in both(&desk, r#"{"limit":10,"limits":[{"amount":5,"per":"day"}]}"#).await {
        let patch = async |body: String| {
            let answer = desk.call(Method::PATCH, &path, body).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            let of_day = answer.json["limits"][0]["raised"]["amount"].clone();
            (answer.json["limit_raised"]["amount"].clone(), of_day)
        };
        let (none, of) = (json!(null), |usd: i64| json!(usd));
        assert_eq!(patch(format!(r#"{{"limit_raised":{}}}"#, raise("20"))).await, (of(20), none.clone()));
        let day = format!(r#"{{"limits":[{{"amount":5,"per":"day","raised":{}}}]}}"#, raise("9"));
        assert_eq!(patch(day.clone()).await, (of(20), of(9)));
        assert_eq!(patch(r#"{"requests_per_minute":5}"#.into()).await, (of(20), of(9)), "it stays");
        assert_eq!(patch(r#"{"limit":10}"#.into()).await, (none.clone(), of(9)), "a limit without it");
        let again = format!(r#"{{"limit":12,"limit_raised":{}}}"#, raise("13"));
        assert_eq!(patch(again).await, (of(13), of(9)));
        let plain = r#"{"limits":[{"amount":5,"per":"day"}]}"#;
        assert_eq!(patch(plain.into()).await, (of(13), none.clone()), "limits without it");
        assert_eq!(patch(r#"{"limit_raised":null}"#.into()).await, (none.clone(), none.clone()));
        assert_eq!(patch(day).await, (none.clone(), of(9)));
        assert_eq!(patch(r#"{"limits":null}"#.into()).await, (none.clone(), none));
    }
    let event = &desk.get(&format!("{EVENTS}?type=key.updated")).await.json["data"][8];
    let raised = json!({"limit_raised": [null, {"amount": 20, "until": UNTIL}]});
    assert_eq!(event["data"]["changes"], raised);
}

#[tokio::test]
async fn a_raise_that_is_not_above_its_limit_or_not_to_come_names_its_place_and_changes_nothing() {
    let desk = Desk::open().await;
    let limited = both(&desk, r#"{"limit":10,"limits":[{"amount":5,"per":"day"}]}"#).await;
    let bare = both(&desk, "{}").await;
    let before = desk.everything().await;
    let of_limit = |raise: &str| format!(r#"{{"limit_raised":{raise}}}"#);
    for (body, code, param) in [
        (of_limit(&raise("10")), "decimal_below_min_value", "limit_raised.amount"),
        (of_limit(&raise("9.999")), "decimal_below_min_value", "limit_raised.amount"),
        (of_limit(&raise("-1")), "decimal_below_min_value", "limit_raised.amount"),
        (of_limit(&raise("1e7")), "decimal_above_max_value", "limit_raised.amount"),
        (of_limit(&raise("\"20\"")), "invalid_type", "limit_raised.amount"),
        (of_limit(r#"{"amount":20,"until":"2026-11-20T02:11:05Z"}"#), "invalid_value", "limit_raised.until"),
        (of_limit(r#"{"amount":20,"until":"2027-11-21T02:11:06Z"}"#), "invalid_value", "limit_raised.until"),
        (of_limit(r#"{"amount":20,"until":"tomorrow"}"#), "invalid_value", "limit_raised.until"),
        (of_limit(r#"{"amount":20,"until":null}"#), "invalid_type", "limit_raised.until"),
        (of_limit(r#"{"amount":20}"#), "missing_required_parameter", "limit_raised.until"),
        (of_limit(&format!(r#"{{"until":"{UNTIL}"}}"#)), "missing_required_parameter", "limit_raised.amount"),
        (of_limit(r#"{"to":20}"#), "unknown_parameter", "limit_raised.to"),
        (of_limit("20"), "invalid_type", "limit_raised"),
        (
            format!(
                r#"{{"limits":[{{"amount":5,"per":"hour"}},{{"amount":5,"per":"day","raised":{}}}]}}"#,
                raise("5")
            ),
            "decimal_below_min_value",
            "limits[1].raised.amount",
        ),
        (
            r#"{"limits":[{"amount":5,"per":"day","raised":{"amount":9,"until":"2026-11-20T02:11:05Z"}}]}"#
                .into(),
            "invalid_value",
            "limits[0].raised.until",
        ),
        (r#"{"limits":[{"amount":5,"per":"day","raised":9}]}"#.into(), "invalid_type", "limits[0].raised"),
    ] {
        for path in &limited {
            desk.call(Method::PATCH, path, body.clone()).await.is_error(400, code, Some(param));
        }
        let made = body.replacen('{', r#"{"limit":10,"#, 1);
        for path in [KEYS, GROUPS] {
            desk.call(Method::POST, path, made.clone()).await.is_error(400, code, Some(param));
        }
    }
    for path in bare {
        let refused = desk.call(Method::PATCH, &path, of_limit(&raise("20"))).await;
        refused.is_error(400, "invalid_value", Some("limit_raised"));
        assert!(refused.text.contains("`limit_raised` needs a `limit`"), "{}", refused.text);
    }
    let refused = desk.call(Method::PATCH, &limited[0], of_limit(&raise("9"))).await;
    assert!(
        refused.text.contains("`limit_raised.amount` must be above `limit`, which is 10."),
        "{}",
        refused.text
    );
    assert_eq!(desk.everything().await, before);
}

#[tokio::test]
async fn settings_of_keys_to_be_made_are_not_raised() {
    let desk = Desk::open().await;
    let group = desk.group("{}").await;
    for (defaults, param) in [
        (format!(r#"{{"limit":5,"limit_raised":{}}}"#, raise("9")), "key_defaults.limit_raised"),
        (
            format!(r#"{{"limits":[{{"amount":5,"per":"day","raised":{}}}]}}"#, raise("9")),
            "key_defaults.limits[0].raised",
        ),
    ] {
        let body = format!(r#"{{"key_defaults":{defaults}}}"#);
        desk.call(Method::PATCH, &group, body).await.is_error(400, "unknown_parameter", Some(param));
    }
    let body = r#"{"key_defaults":{"limit":5,"limits":[{"amount":2,"per":"day"}]}}"#;
    let defaults = desk.call(Method::PATCH, &group, body).await.json["key_defaults"].clone();
    assert_eq!(
        (&defaults["limits"], &defaults["limit_raised"]),
        (&json!([{"amount": 2, "per": "day"}]), &json!(null))
    );
    // A key that is created in the group can raise the limit that it gets from the group's defaults.
    let id = group.rsplit('/').next().unwrap();
    let made = desk.created(&format!(r#"{{"group_id":"{id}","limit_raised":{}}}"#, raise("9"))).await;
    assert_eq!((&made["limit"], &made["limit_remaining"]), (&json!(5), &json!(9)));
    let below = format!(r#"{{"group_id":"{id}","limit_raised":{}}}"#, raise("4"));
    desk.create(&below).await.is_error(400, "decimal_below_min_value", Some("limit_raised.amount"));
}

#[tokio::test]
async fn a_request_that_is_sent_again_makes_one_key_although_its_raise_has_ended_since() {
    let desk = Desk::open().await;
    let body = format!(r#"{{"limit":10,"limit_raised":{}}}"#, raise("20"));
    for path in [KEYS, GROUPS] {
        desk.office.clock.set("2026-11-20T02:11:05Z");
        let made = desk.once(path, path, &body).await;
        assert_eq!(made.status, 201, "{}", made.text);
        desk.office.clock.set(UNTIL);
        let again = desk.once(path, path, &body).await;
        assert_eq!((again.status.as_u16(), &again.json["id"]), (201, &made.json["id"]), "{}", again.text);
        let other = desk.once(path, path, &body.replace("20,", "21,")).await;
        other.is_error(409, "idempotency_key_reuse", None);
    }
}

#[tokio::test]
async fn a_nearly_full_store_lets_nobody_raise_a_limit_and_lets_a_raise_be_taken_away() {
    let desk = Desk::open().await;
    let paths = both(&desk, r#"{"limit":10,"limits":[{"amount":5,"per":"day"}]}"#).await;
    let day = |raise: &str| format!(r#"{{"limits":[{{"amount":5,"per":"day","raised":{raise}}}]}}"#);
    let of_limit = |raise: &str| format!(r#"{{"limit_raised":{raise}}}"#);
    for path in &paths {
        for body in [of_limit(&raise("20")), day(&raise("9"))] {
            assert_eq!(desk.call(Method::PATCH, path, body).await.status, 200);
        }
    }
    desk.office.records.set_nearly_full(true);
    for path in &paths {
        for more in [
            of_limit(&raise("21")),
            of_limit(r#"{"amount":15,"until":"2026-11-20T02:12:06Z"}"#),
            day(&raise("9.5")),
            day(r#"{"amount":8,"until":"2026-11-20T02:12:06Z"}"#),
        ] {
            desk.call(Method::PATCH, path, more).await.is_error(503, "store_full", None);
        }
        for less in [of_limit(&raise("19")), day(&raise("8")), day("null"), of_limit("null")] {
            assert_eq!(desk.call(Method::PATCH, path, less.clone()).await.status, 200, "{less}");
        }
        desk.call(Method::PATCH, path, of_limit(&raise("20"))).await.is_error(503, "store_full", None);
    }
}
