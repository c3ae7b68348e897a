//! Actions on every key of a list.

use std::time::Duration;

use http::Method;
use serde_json::json;
use shared::clock::{Clock, System};
use tests::harness::{Stack, attribute};

use crate::{dashboard::signed_in, money::budgets::group};

/// More keys than a page lists.
const KEYS: usize = 53;

#[apply(fact)]
async fn every_key_of_a_filtered_list_is_raised_and_disabled_at_once() {
    let stack = Stack::start().await;
    let agents = group(&stack, json!({"name": "Agents"})).await;
    let agents = agents["id"].as_str().unwrap();
    let mut keys = Vec::new();
    for n in 0..KEYS {
        let limits = json!([{"amount": 1, "per": "day"}]);
        let label = format!("agent-{n}");
        keys.push(stack.key_with(json!({"label": label, "group_id": agents, "limits": limits})).await);
    }
    stack.key_with(json!({"label": "free", "group_id": agents})).await;
    let outside = stack.key_with(json!({"label": "outside"})).await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let all = format!("group={agents}");
    let list = owner.get(&format!("/dashboard/keys?{all}")).await;
    assert!(list.text().contains("All in this list"), "{list}");

    let asked = owner.post("/dashboard/keys/many", &[("deed", "raise"), ("all", &all)]).await;
    assert!(asked.text().contains("Raise a limit of 54 API keys?"), "{asked}");
    assert!(asked.text().contains("and 4 more") && !asked.text().contains("outside"), "{asked}");
    let confirmed = attribute(&asked, "name=\"confirmed\" value=\"").unwrap();
    let until = System.now().plus(Duration::from_hours(1)).to_string();
    let until = &until[..16];
    let fields = [
        ("deed", "raise"),
        ("all", &all),
        ("resets", "day"),
        ("percent", "150"),
        ("until", until),
        ("confirmed", &confirmed),
    ];
    let unconfirmed = owner.post("/dashboard/keys/many/apply", &fields[..5]).await;
    assert!(unconfirmed.text().contains("Raise a limit of 54 API keys?"), "{unconfirmed}");
    // The form is submitted twice, as if by accident. The second time, it does not raise the limits further.
    for _ in 0..2 {
        assert_eq!(owner.post("/dashboard/keys/many/apply", &fields).await.status, 303);
        let done = owner.get("/dashboard/keys").await;
        assert!(done.text().contains("Limit of 53 API keys raised. Without such a limit: 1."), "{done}");
        for key in [&keys[0], &keys[KEYS - 1]] {
            let limits = stack.show(key).await["limits"].clone();
            assert_eq!(limits[0]["raised"]["amount"].as_f64(), Some(1.5), "{limits}");
            assert_eq!(limits[0]["raised"]["until"], format!("{until}:00Z"));
        }
    }

    let asked = owner.post("/dashboard/keys/many", &[("deed", "disable"), ("all", &all)]).await;
    let confirmed = attribute(&asked, "name=\"confirmed\" value=\"").unwrap();
    let late = stack.key_with(json!({"label": "late", "group_id": agents})).await;
    let fields = [("deed", "disable"), ("all", &*all), ("confirmed", &confirmed)];
    let again = owner.post("/dashboard/keys/many/apply", &fields).await;
    assert!(again.text().contains("Disable 55 API keys?"), "another key matches now: {again}");
    assert!(again.text().contains("Other keys match now. Nothing was changed."), "{again}");
    assert_eq!(stack.show(&late).await["status"], "active");
    let confirmed = attribute(&again, "name=\"confirmed\" value=\"").unwrap();
    let fields = [("deed", "disable"), ("all", &*all), ("confirmed", &confirmed)];
    assert_eq!(owner.post("/dashboard/keys/many/apply", &fields).await.status, 303);
    assert_eq!(stack.show(&late).await["status"], "disabled");
    let active = format!("{all}&status=active");
    let fields = [("deed", "disable"), ("all", &*active), ("confirmed", &confirmed)];
    assert_eq!(owner.post("/dashboard/keys/many/apply", &fields).await.status, 303);
    let none = owner.get("/dashboard/keys").await;
    assert!(none.text().contains("No keys match any more."), "{none}");
    let left = stack.manage(Method::GET, &format!("?status=active&group_id={agents}"), None).await.json();
    assert_eq!(
        (left["data"].as_array().unwrap().len(), &stack.show(&outside).await["status"]),
        (0, &json!("active"))
    );
}
