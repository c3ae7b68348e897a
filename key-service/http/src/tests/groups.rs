//! Groups of keys, and keys that ask about themselves.

use super::*;

const UNKNOWN: &str = "grp_00000000000070008000000000000000";

#[tokio::test]
async fn a_group_is_answered_whole() {
    let desk = Desk::open().await;
    let body = r#"{"name":"Course 101","external_id":"course-101","limit":400,"metadata":{"term":"fall"},
        "key_defaults":{"limits":[{"amount":5,"per":"week"}],"expires_in_seconds":60}}"#;
    let made = desk.call(Method::POST, GROUPS, body).await;
    let id = id_of(&made.json);
    assert_eq!(made.status, 201);
    assert_eq!(made.headers["location"], format!("{GROUPS}/{id}"));
    assert!(id.starts_with("grp_") && id.len() == 36, "{id}");
    let expected = format!(
        r#"{{"id":"{id}","object":"group","name":"Course 101","external_id":"course-101","parent_id":null,"limit":400,"used":0,"limit_remaining":400,"limit_raised":null,"limits":null,"models":null,"requests_per_minute":null,"tokens_per_minute":null,"max_in_flight":null,"paid":null,"key_defaults":{{"limit":null,"limits":[{{"amount":5,"per":"week"}}],"models":null,"requests_per_minute":null,"tokens_per_minute":null,"max_in_flight":null,"expires_in_seconds":60,"metadata":{{}}}},"metadata":{{"term":"fall"}},"keys":0,"created_at":"2026-11-20T02:11:05Z","archived_at":null}}"#
    );
    assert_eq!(made.text, expected);
    assert_eq!(desk.get(&format!("{GROUPS}/{id}")).await.text, expected);
    assert_eq!(
        desk.get(GROUPS).await.text,
        format!(
            r#"{{"object":"list","data":[{expected}],"first_id":"{id}","last_id":"{id}","has_more":false}}"#
        )
    );
}

#[tokio::test]
async fn a_group_is_made_once_for_each_external_id_and_found_by_it() {
    let desk = Desk::open().await;
    let first = desk.call(Method::POST, GROUPS, r#"{"name":"Acme","external_id":"cus_1"}"#).await;
    let again = desk.call(Method::POST, GROUPS, r#"{"name":"Other","external_id":"cus_1","limit":5}"#).await;
    assert_eq!((again.status.as_u16(), &again.text), (200, &first.text));
    desk.call(Method::POST, GROUPS, r#"{"external_id":"cus_2"}"#).await;
    let found = desk.get(&format!("{GROUPS}?external_id=cus_1")).await;
    assert_eq!(ids_in(&found), (vec![id_of(&first.json)], false));
    assert_eq!(ids_in(&desk.get(&format!("{GROUPS}?external_id=cus_3")).await), (Vec::new(), false));
    for (body, code) in [
        (r#"{"external_id":""}"#.to_owned(), "empty_string"),
        (format!(r#"{{"external_id":"{}"}}"#, "x".repeat(129)), "string_above_max_length"),
        (r#"{"external_id":"a\n"}"#.to_owned(), "invalid_value"),
        (r#"{"external_id":7}"#.to_owned(), "invalid_type"),
    ] {
        desk.call(Method::POST, GROUPS, body).await.is_error(400, code, Some("external_id"));
    }
    let long = format!("{GROUPS}?external_id={}", "x".repeat(129));
    desk.get(&long).await.is_error(400, "string_above_max_length", Some("external_id"));
    let path = format!("{GROUPS}/{}", id_of(&first.json));
    let fixed = desk.call(Method::PATCH, &path, r#"{"external_id":"cus_9"}"#).await;
    fixed.is_error(400, "unknown_parameter", Some("external_id"));
    let two = [r#"{"external_id":null}"#, "{}"];
    for body in two {
        assert_eq!(desk.call(Method::POST, GROUPS, body).await.status, 201);
    }
    assert_eq!(ids_in(&desk.get(GROUPS).await).0.len(), 4);
}

#[tokio::test]
async fn groups_of_other_accounts_take_nothing() {
    let mut desk = Desk::open().await;
    let group = desk.group(r#"{"external_id":"mine"}"#).await;
    let id = group.rsplit('/').next().unwrap().to_owned();
    desk.credential = desk.office.account("other").await.1;
    desk.create(&format!(r#"{{"group_id":"{id}"}}"#)).await.is_error(400, "invalid_value", Some("group_id"));
    let child = format!(r#"{{"parent_id":"{id}"}}"#);
    desk.call(Method::POST, GROUPS, child).await.is_error(400, "invalid_value", Some("parent_id"));
    assert_eq!(desk.call(Method::POST, GROUPS, r#"{"external_id":"mine"}"#).await.status, 201);
}

#[tokio::test]
async fn groups_have_two_levels() {
    let desk = Desk::open().await;
    let [top, other] = [desk.group("{}").await, desk.group("{}").await];
    let [top_id, other_id] = [&top, &other].map(|path| path.rsplit('/').next().unwrap().to_owned());
    let under = |id: &str| format!(r#"{{"parent_id":"{id}"}}"#);
    let child = desk.group(&under(&top_id)).await;
    let child_id = child.rsplit('/').next().unwrap().to_owned();
    let refused = [
        desk.call(Method::POST, GROUPS, under(&child_id)).await,
        desk.call(Method::PATCH, &top, under(&other_id)).await,
        desk.call(Method::PATCH, &other, under(&other_id)).await,
        desk.call(Method::PATCH, &other, under(UNKNOWN)).await,
        desk.call(Method::PATCH, &other, under("nonsense")).await,
    ];
    for answer in refused {
        answer.is_error(400, "invalid_value", Some("parent_id"));
    }
    let moved = desk.call(Method::PATCH, &child, under(&other_id)).await;
    assert_eq!((moved.status.as_u16(), &moved.json["parent_id"]), (200, &json!(other_id)));
    let alone = desk.call(Method::PATCH, &child, r#"{"parent_id":null}"#).await;
    assert_eq!(alone.json["parent_id"], json!(null));
    assert_eq!(desk.call(Method::PATCH, &top, under(&other_id)).await.status, 200);
}

#[tokio::test]
async fn keys_are_made_in_a_group_with_its_defaults_and_move_between_groups() {
    let desk = Desk::open().await;
    let body = r#"{"key_defaults":{"limit":5,"max_in_flight":4,"expires_in_seconds":60,"metadata":{"plan":"gold"}}}"#;
    let group = desk.group(body).await;
    let id = group.rsplit('/').next().unwrap();
    let plain = desk.created(&format!(r#"{{"group_id":"{id}"}}"#)).await;
    assert_eq!(
        (&plain["group_id"], &plain["limit"], &plain["max_in_flight"]),
        (&json!(id), &json!(5), &json!(4))
    );
    assert_eq!(plain["expires_at"], "2026-11-20T02:12:05.678Z");
    assert_eq!(plain["metadata"], json!({"plan": "gold"}));
    let own = format!(
        r#"{{"group_id":"{id}","limit":null,"max_in_flight":2,"expires_at":null,"metadata":{{"plan":null,"a":"b"}}}}"#
    );
    let own = desk.created(&own).await;
    assert_eq!(
        (&own["limit"], &own["max_in_flight"], &own["expires_at"]),
        (&json!(null), &json!(2), &json!(null))
    );
    assert_eq!(own["metadata"], json!({"a": "b"}));
    let other = desk.group("{}").await;
    let other_id = other.rsplit('/').next().unwrap();
    let moved = desk.patch(&id_of(&plain), &format!(r#"{{"group_id":"{other_id}"}}"#)).await;
    assert_eq!((&moved.json["group_id"], &moved.json["limit"]), (&json!(other_id), &json!(5)));
    assert_eq!(ids_in(&desk.get(&format!("{group}/keys")).await), (vec![id_of(&own)], false));
    let filtered = desk.get(&format!("{KEYS}?group_id={other_id}")).await;
    assert_eq!(ids_in(&filtered), (vec![id_of(&plain)], false));
    assert_eq!(
        (&desk.get(&group).await.json["keys"], &desk.get(&other).await.json["keys"]),
        (&json!(1), &json!(1))
    );
    let left = desk.patch(&id_of(&plain), r#"{"group_id":null}"#).await;
    assert_eq!(left.json["group_id"], json!(null));
    for bad in [UNKNOWN, "nonsense"] {
        let body = format!(r#"{{"group_id":"{bad}"}}"#);
        desk.create(&body).await.is_error(400, "invalid_value", Some("group_id"));
        desk.patch(&id_of(&own), &body).await.is_error(400, "invalid_value", Some("group_id"));
    }
    desk.get(&format!("{KEYS}?group_id=nonsense")).await.is_error(400, "invalid_value", Some("group_id"));
}

#[tokio::test]
async fn key_defaults_merge_and_are_cleared() {
    let desk = Desk::open().await;
    let group = desk.group(r#"{"key_defaults":{"limit":5,"max_in_flight":4}}"#).await;
    let defaults = async |patch: &str| {
        let body = format!(r#"{{"key_defaults":{patch}}}"#);
        desk.call(Method::PATCH, &group, body).await.json["key_defaults"].clone()
    };
    let merged = defaults(r#"{"limit":null,"models":["a"]}"#).await;
    assert_eq!(
        (&merged["limit"], &merged["models"], &merged["max_in_flight"]),
        (&json!(null), &json!(["a"]), &json!(4))
    );
    assert_eq!(defaults("null").await, json!(null));
    assert_eq!(defaults(r#"{"expires_in_seconds":60}"#).await["expires_in_seconds"], 60);
    assert_eq!(defaults(r#"{"expires_in_seconds":null}"#).await, json!(null));
    for (value, code) in [("0", "integer_below_min_value"), ("3162240001", "integer_above_max_value")] {
        let body = format!(r#"{{"key_defaults":{{"expires_in_seconds":{value}}}}}"#);
        let answer = desk.call(Method::PATCH, &group, body).await;
        answer.is_error(400, code, Some("key_defaults.expires_in_seconds"));
    }
}

#[tokio::test]
async fn an_archived_group_takes_nothing_and_stays_archived_since_the_first_time() {
    let desk = Desk::open().await;
    let top = desk.group("{}").await;
    let top_id = top.rsplit('/').next().unwrap();
    let child = desk.group(&format!(r#"{{"parent_id":"{top_id}"}}"#)).await;
    let child_id = child.rsplit('/').next().unwrap();
    let key = desk.created_id("{}").await;
    let archived = desk.call(Method::DELETE, &top, "").await;
    assert_eq!(
        (archived.status.as_u16(), &archived.json["archived_at"]),
        (200, &json!("2026-11-20T02:11:05Z"))
    );
    desk.office.clock.set("2026-12-01T00:00:00Z");
    assert_eq!(desk.call(Method::DELETE, &top, "").await.text, archived.text);
    for group in [top_id, child_id] {
        let body = format!(r#"{{"group_id":"{group}"}}"#);
        let refused = desk.create(&body).await;
        refused.is_error(409, "group_archived", Some("group_id"));
        assert_eq!(refused.headers["x-should-retry"], "false");
        desk.patch(&key, &body).await.is_error(409, "group_archived", Some("group_id"));
    }
    let under = format!(r#"{{"parent_id":"{top_id}"}}"#);
    desk.call(Method::POST, GROUPS, under).await.is_error(409, "group_archived", Some("parent_id"));
    desk.call(Method::PATCH, &top, r#"{"name":"x"}"#).await.is_error(409, "group_archived", None);
    assert_eq!(desk.call(Method::PATCH, &child, r#"{"name":"x"}"#).await.status, 200);
}

#[tokio::test]
async fn all_keys_of_a_group_are_revoked_at_once() {
    let desk = Desk::open().await;
    let group = desk.group("{}").await;
    let id = group.rsplit('/').next().unwrap();
    let mut keys = Vec::new();
    for _ in 0..3 {
        keys.push(desk.created_id(&format!(r#"{{"group_id":"{id}"}}"#)).await);
    }
    let other = desk.created_id("{}").await;
    desk.delete(&keys[0]).await;
    let revoke = format!("{group}/revoke_keys");
    let answer = desk.call(Method::POST, &revoke, "").await;
    assert_eq!(answer.json, json!({"id": id, "object": "group.revoked_keys", "revoked": 2}));
    assert_eq!(desk.call(Method::POST, &revoke, "").await.json["revoked"], 0);
    let listed = desk.get(&format!("{group}/keys?status=revoked&limit=2&order=asc")).await;
    assert_eq!(ids_in(&listed), (keys[..2].to_vec(), true));
    assert_eq!(desk.get(&format!("{KEYS}/{other}")).await.json["status"], "active");
}

#[tokio::test]
async fn groups_are_listed_in_pages_and_by_metadata() {
    let desk = Desk::open().await;
    let mut ids = Vec::new();
    for n in 0..7 {
        let body = format!(r#"{{"metadata":{{"odd":"{}"}}}}"#, n % 2);
        ids.push(desk.group(&body).await.rsplit('/').next().unwrap().to_owned());
    }
    let page = desk.get(&format!("{GROUPS}?order=asc&limit=3&after={}", ids[1])).await;
    assert_eq!(ids_in(&page), (ids[2..5].to_vec(), true));
    let odd: Vec<String> = ids.iter().skip(1).step_by(2).rev().cloned().collect();
    assert_eq!(ids_in(&desk.get(&format!("{GROUPS}?metadata[odd]=1")).await), (odd, false));
    for unknown in [UNKNOWN, "nonsense"] {
        desk.get(&format!("{GROUPS}?after={unknown}")).await.is_error(400, "invalid_value", Some("after"));
    }
}

#[tokio::test]
async fn a_nearly_full_store_and_a_full_account_take_no_new_groups() {
    let desk = Desk::open().await;
    let group = desk.group(r#"{"external_id":"here"}"#).await;
    desk.office.records.set_nearly_full(true);
    desk.call(Method::POST, GROUPS, "{}").await.is_error(503, "store_full", None);
    assert_eq!(desk.call(Method::POST, GROUPS, r#"{"external_id":"here"}"#).await.status, 200);
    desk.call(Method::PATCH, &group, r#"{"name":"longer"}"#).await.is_error(503, "store_full", None);
    assert_eq!(desk.call(Method::PATCH, &group, r#"{"limit":1}"#).await.status, 200);
    for more in [r#"{"limit":2}"#, r#"{"key_defaults":{"limit":1}}"#, r#"{"models":["Model Flash"]}"#] {
        desk.call(Method::PATCH, &group, more).await.is_error(503, "store_full", None);
    }
    desk.office.records.set_nearly_full(false);
    let Office { store, clock, credentials, .. } = &desk.office;
    let management = Management::new(store.clone(), clock.clone(), credentials.clone()).with_max_keys(2);
    let desk = Desk {
        app: router(Arc::new(management), clock.clone(), internal_token(), None, Router::new()),
        ..desk
    };
    desk.group("{}").await;
    desk.call(Method::POST, GROUPS, "{}").await.is_error(400, "too_many_groups", None);
}

#[tokio::test]
async fn a_key_is_shown_to_its_holder_with_its_groups_whatever_money_is_left() {
    let desk = Desk::open().await;
    let course = desk.group(r#"{"name":"course"}"#).await;
    let course_id = course.rsplit('/').next().unwrap();
    let team = desk.group(&format!(r#"{{"name":"team","parent_id":"{course_id}"}}"#)).await;
    let team_id = team.rsplit('/').next().unwrap();
    let key = desk.created(&format!(r#"{{"group_id":"{team_id}","limit":0}}"#)).await;
    let holder = Desk { credential: key["key"].as_str().unwrap().into(), ..Desk::of(&desk) };
    let mut expected = key.clone();
    expected.as_object_mut().unwrap().remove("key");
    let parent = json!({"id": course_id, "name": "course", "parent": null});
    expected["group"] = json!({"id": team_id, "name": "team", "parent": parent});
    assert_eq!(holder.get(OWN_KEY).await.json, expected);
    desk.get(OWN_KEY).await.is_error(403, "management_key_not_allowed", None);
    let lone = desk.created("{}").await;
    let lone = Desk { credential: lone["key"].as_str().unwrap().into(), ..Desk::of(&desk) };
    assert_eq!(lone.get(OWN_KEY).await.json["group"], json!(null));
    desk.patch(&id_of(&key), r#"{"expires_at":"2020-01-01T00:00Z"}"#).await;
    holder.get(OWN_KEY).await.is_error(401, "key_expired", None);
    desk.patch(&id_of(&key), r#"{"disabled":true}"#).await;
    let refused = holder.get(OWN_KEY).await;
    refused.is_error(401, "key_disabled", None);
    assert_eq!(refused.headers["www-authenticate"], r#"Bearer realm="api", error="invalid_token""#);
    desk.patch(&id_of(&key), r#"{"disabled":false}"#).await;
    desk.patch(&id_of(&key), r#"{"expires_at":null}"#).await;
    desk.call(Method::DELETE, &course, "").await;
    holder.get(OWN_KEY).await.is_error(401, "group_archived", None);
    desk.delete(&id_of(&key)).await;
    holder.get(OWN_KEY).await.is_error(401, "invalid_api_key", None);
    holder.call(Method::POST, OWN_KEY, "").await.is_error(405, "method_not_allowed", None);
}

#[tokio::test]
async fn an_idempotency_key_is_apart_from_the_external_id() {
    let desk = Desk::open().await;
    let body =
        r#"{"name":"Team","external_id":"c-1","metadata":{"a":"b"},"limits":[{"amount":5,"per":"day"}]}"#;
    let first = desk.once(GROUPS, "once", body).await;
    assert_eq!(first.status, 201);
    for other in [r#"{"name":"Team"}"#, r#"{"name":"Other","external_id":"c-1"}"#, r#"{"external_id":"c-1"}"#]
    {
        desk.once(GROUPS, "once", other).await.is_error(409, "idempotency_key_reuse", None);
    }
    desk.once(KEYS, "once", "{}").await.is_error(409, "idempotency_key_reuse", None);
    assert_eq!(desk.once(GROUPS, "twice", body).await.status, 200, "the external id is there");
    assert_eq!(desk.get(GROUPS).await.json["data"].as_array().unwrap().len(), 1);
}
