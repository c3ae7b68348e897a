//! Limits and metadata of keys.

use super::*;

const EVERYTHING: &str = r#"{"limit":25,"limits":[{"amount":5.5,"per":"week"},{"amount":2e1,"per":"month"}],
    "models":["Model Flash","Model Later"],"requests_per_minute":60,"tokens_per_minute":1000000000,"max_in_flight":4,
    "metadata":{"plan":"gold","team":"ö\n"}}"#;

#[tokio::test]
async fn bounds_are_answered_as_they_were_set_with_the_state_of_each_window() {
    let desk = Desk::open().await;
    let key = desk.created(EVERYTHING).await;
    assert_eq!(
        key["limits"],
        json!([
            {"amount": 5.5, "per": "week", "raised": null, "used": 0, "remaining": 5.5, "resets_at": "2026-11-23T00:00:00Z"},
            {"amount": 20, "per": "month", "raised": null, "used": 0, "remaining": 20, "resets_at": "2026-12-01T00:00:00Z"},
        ])
    );
    assert_eq!(key["models"], json!(["Model Flash", "Model Later"]));
    assert_eq!((&key["requests_per_minute"], &key["tokens_per_minute"]), (&json!(60), &json!(1_000_000_000)));
    assert_eq!((&key["max_in_flight"], &key["metadata"]["team"]), (&json!(4), &json!("ö\n")));
    let id = id_of(&key);
    desk.bill(&id, 1_250_000_000).await;
    let used = desk.get(&format!("{KEYS}/{id}")).await;
    assert!(
        used.text.contains(r#"{"amount":5.5,"per":"week","raised":null,"used":1.25,"remaining":4.25,"#),
        "{}",
        used.text
    );
    desk.office.clock.set("2026-11-23T00:00:00Z");
    let renewed = desk.get(&format!("{KEYS}/{id}")).await;
    let limits = renewed.json["limits"].as_array().unwrap();
    assert_eq!((&limits[0]["used"], &limits[0]["resets_at"]), (&json!(0), &json!("2026-11-30T00:00:00Z")));
    assert_eq!((&limits[1]["used"], &limits[1]["remaining"]), (&json!(1.25), &json!(18.75)));
}

#[tokio::test]
async fn a_bound_is_replaced_cleared_or_left_and_a_window_that_stays_keeps_what_was_used() {
    let desk = Desk::open().await;
    let id = desk.created_id(EVERYTHING).await;
    desk.bill(&id, 1_000_000_000).await;
    let lowered = desk.patch(&id, r#"{"limits":[{"amount":0.5,"per":"week"}]}"#).await;
    assert_eq!(lowered.json["limits"].as_array().unwrap().len(), 1);
    assert!(lowered.text.contains(r#""used":1,"remaining":-0.5,"#), "{}", lowered.text);
    for (patch, field, value) in [
        (r#"{"limits":[]}"#, "limits", json!(null)),
        (r#"{"models":null}"#, "models", json!(null)),
        (r#"{"models":["x"]}"#, "models", json!(["x"])),
        (r#"{"requests_per_minute":1}"#, "requests_per_minute", json!(1)),
        (r#"{"requests_per_minute":null}"#, "requests_per_minute", json!(null)),
        (r#"{"tokens_per_minute":null}"#, "tokens_per_minute", json!(null)),
        (r#"{"max_in_flight":null}"#, "max_in_flight", json!(null)),
        (r#"{"limits":null}"#, "limits", json!(null)),
    ] {
        let before = desk.get(&format!("{KEYS}/{id}")).await.json;
        let mut expected = before.clone();
        expected[field] = value;
        let answer = desk.patch(&id, patch).await;
        assert_eq!((answer.status.as_u16(), &answer.json), (200, &expected), "{patch}");
    }
}

#[tokio::test]
async fn metadata_merge_and_have_at_most_sixteen_names() {
    let desk = Desk::open().await;
    let id = desk.created_id(r#"{"metadata":{"a":"1","b":"2","gone":null}}"#).await;
    for (patch, metadata) in [
        (r#"{"metadata":{}}"#, json!({"a": "1", "b": "2"})),
        (r#"{"metadata":{"b":"3","c":""}}"#, json!({"a": "1", "b": "3", "c": ""})),
        (r#"{"metadata":{"a":null,"unknown":null}}"#, json!({"b": "3", "c": ""})),
        (r#"{"metadata":null}"#, json!({})),
    ] {
        let answer = desk.patch(&id, patch).await;
        assert_eq!(answer.json["metadata"], metadata, "{patch}");
    }
    let names = |from: u32, to: u32| {
        let members: Vec<String> = (from..to).map(|n| format!(r#""n{n}":"x""#)).collect();
        format!(r#"{{"metadata":{{{}}}}}"#, members.join(","))
    };
    assert_eq!(desk.patch(&id, &names(0, 16)).await.status, 200);
    let refused = desk.patch(&id, &names(16, 17)).await;
    refused.is_error(400, "object_above_max_properties", Some("metadata"));
    assert_eq!(desk.patch(&id, r#"{"metadata":{"n0":null,"n16":"x"}}"#).await.status, 200);
}

#[tokio::test]
async fn a_bad_bound_names_its_place_and_changes_nothing() {
    let desk = Desk::open().await;
    let id = desk.created_id("{}").await;
    let group = desk.group("{}").await;
    let before = desk.everything().await;
    let many = |what: &str, count: usize| vec![what.to_owned(); count].join(",");
    let names: Vec<String> = (0..17).map(|n| format!(r#""n{n}":"x""#)).collect();
    for (member, code, param) in [
        (r#""limits":{}"#.into(), "invalid_type", "limits"),
        (r#""limits":[5]"#.into(), "invalid_type", "limits[0]"),
        (r#""limits":[{"per":"day"}]"#.into(), "missing_required_parameter", "limits[0].amount"),
        (r#""limits":[{"amount":1}]"#.into(), "missing_required_parameter", "limits[0].per"),
        (r#""limits":[{"amount":null,"per":"day"}]"#.into(), "invalid_type", "limits[0].amount"),
        (r#""limits":[{"amount":-1,"per":"day"}]"#.into(), "decimal_below_min_value", "limits[0].amount"),
        (r#""limits":[{"amount":1e7,"per":"day"}]"#.into(), "decimal_above_max_value", "limits[0].amount"),
        (r#""limits":[{"amount":1,"per":"year"}]"#.into(), "invalid_value", "limits[0].per"),
        (r#""limits":[{"amount":1,"per":"day","x":1}]"#.into(), "unknown_parameter", "limits[0].x"),
        (
            r#""limits":[{"amount":1,"per":"day"},{"amount":2,"per":"day"}]"#.into(),
            "invalid_value",
            "limits[1].per",
        ),
        (
            format!(r#""limits":[{}]"#, many(r#"{"amount":1,"per":"day"}"#, 5)),
            "array_above_max_length",
            "limits",
        ),
        (r#""models":[]"#.into(), "empty_array", "models"),
        (r#""models":"Model Flash""#.into(), "invalid_type", "models"),
        (r#""models":["a",5]"#.into(), "invalid_type", "models[1]"),
        (r#""models":[""]"#.into(), "empty_string", "models[0]"),
        (format!(r#""models":[{}]"#, many("\"a\"", 65)), "array_above_max_length", "models"),
        (format!(r#""models":["{}"]"#, "x".repeat(201)), "string_above_max_length", "models[0]"),
        (r#""requests_per_minute":0"#.into(), "integer_below_min_value", "requests_per_minute"),
        (r#""requests_per_minute":-5"#.into(), "integer_below_min_value", "requests_per_minute"),
        (r#""tokens_per_minute":1000000001"#.into(), "integer_above_max_value", "tokens_per_minute"),
        (
            r#""tokens_per_minute":99999999999999999999999"#.into(),
            "integer_above_max_value",
            "tokens_per_minute",
        ),
        (r#""max_in_flight":1.5"#.into(), "invalid_type", "max_in_flight"),
        (r#""max_in_flight":"4""#.into(), "invalid_type", "max_in_flight"),
        (r#""metadata":[]"#.into(), "invalid_type", "metadata"),
        (r#""metadata":{"a":5}"#.into(), "invalid_type", "metadata.a"),
        (r#""metadata":{"":"x"}"#.into(), "empty_string", "metadata"),
        (format!(r#""metadata":{{"{}":"x"}}"#, "n".repeat(65)), "string_above_max_length", "metadata"),
        (format!(r#""metadata":{{"a":"{}"}}"#, "x".repeat(513)), "string_above_max_length", "metadata.a"),
        (format!(r#""metadata":{{{}}}"#, names.join(",")), "object_above_max_properties", "metadata"),
    ] {
        let body = format!("{{{member}}}");
        desk.create(&body).await.is_error(400, code, Some(param));
        desk.patch(&id, &body).await.is_error(400, code, Some(param));
        desk.call(Method::POST, GROUPS, body.clone()).await.is_error(400, code, Some(param));
        desk.call(Method::PATCH, &group, body.clone()).await.is_error(400, code, Some(param));
        let defaults = format!(r#"{{"key_defaults":{body}}}"#);
        let place = format!("key_defaults.{param}");
        desk.call(Method::PATCH, &group, defaults).await.is_error(400, code, Some(&place));
    }
    for (name, value) in [("group_id", "5"), ("used", "1"), ("limit_remaining", "1")] {
        let code = if name == "group_id" { "invalid_type" } else { "unknown_parameter" };
        desk.create(&format!(r#"{{"{name}":{value}}}"#)).await.is_error(400, code, Some(name));
    }
    assert_eq!(desk.everything().await, before);
}

#[tokio::test]
async fn the_largest_body_of_a_group_is_read() {
    let desk = Desk::open().await;
    let crab = |count| "🦀".repeat(count);
    let metadata: Vec<String> = (10..26).map(|n| format!(r#""{n}{}":"{}""#, crab(62), crab(512))).collect();
    let models: Vec<String> = (0..64).map(|_| format!("\"{}\"", crab(200))).collect();
    let settings = format!(r#""models":[{}],"metadata":{{{}}}"#, models.join(","), metadata.join(","));
    let body = format!(r#"{{{settings},"key_defaults":{{{settings}}}}}"#);
    let made = desk.call(Method::POST, GROUPS, body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert_eq!(made.json["key_defaults"]["metadata"].as_object().unwrap().len(), 16);
}

#[tokio::test]
async fn keys_are_listed_by_their_metadata() {
    let desk = Desk::open().await;
    let mut gold = Vec::new();
    for n in 0..1_050 {
        let plan = if n % 350 == 7 { "gold" } else { "free" };
        let id = desk.created_id(&format!(r#"{{"metadata":{{"plan":"{plan}","n":"{n}"}}}}"#)).await;
        if plan == "gold" {
            gold.push(id);
        }
    }
    let listed = async |query: &str| ids_in(&desk.get(&format!("{KEYS}?order=asc&{query}")).await);
    assert_eq!(listed("metadata[plan]=gold").await, (gold.clone(), false));
    assert_eq!(listed("metadata%5Bplan%5D=gold&limit=2").await, (gold[..2].to_vec(), true));
    let after = format!("metadata[plan]=gold&limit=2&after={}", gold[1]);
    assert_eq!(listed(&after).await, (gold[2..].to_vec(), false));
    assert_eq!(listed("metadata[plan]=gold&metadata[n]=357").await, (gold[1..2].to_vec(), false));
    assert_eq!(listed("metadata[plan]=silver").await, (Vec::new(), false));
    for bad in ["metadata=gold", "metadata[plan=gold", "metadata%5B=x"] {
        desk.get(&format!("{KEYS}?{bad}")).await.is_error(400, "invalid_value", Some("metadata"));
    }
}
