//! Keys and groups with problems: each problem appears where the owner looks, with the reason.

use http::Method;
use serde_json::json;
use shared::money::NanoUsd;
use tests::harness::{Answer, ApiKey, Deployment, Form, Options, Receiver, Stack, attribute};

use crate::{
    dashboard::{pages::attempt, signed_in},
    money::budgets::{group, number, requests, send},
};

/// Returns nearly twice the price of a request: what is left after one request is not zero, but does not pay for a
/// second request.
fn nearly_two() -> NanoUsd {
    NanoUsd::from_nanos(requests(2).nanos() - 1)
}

/// Sends requests until one is refused. The second request is cut off at the last token that the remaining money pays
/// for.
async fn until_refused(stack: &Stack, key: &ApiKey, code: &str) {
    for _ in 0..2 {
        assert_eq!(send(stack, key).await.status, 200);
    }
    send(stack, key).await.assert_error(402, code);
}

async fn keys_that_are_refused_are_seen_and_found(deployment: Deployment) {
    let stack = Stack::with(Options { deployment, ..Options::default() }).await;
    let own = stack.key_with(json!({"label": "wonka", "limit": number(nearly_two())})).await;
    let day = json!([{"amount": number(nearly_two()), "per": "day"}]);
    let team = group(&stack, json!({"name": "Tiny team", "limits": day})).await;
    let inside = stack.key_with(json!({"label": "tiny-a", "group_id": team["id"], "limit": 5})).await;
    let parent = group(&stack, json!({"name": "School", "limit": number(nearly_two())})).await;
    let course = group(&stack, json!({"name": "Course", "parent_id": parent["id"]})).await;
    let pupil = stack.key_with(json!({"label": "pupil", "group_id": course["id"]})).await;
    stack.key_with(json!({"label": "fine", "limit": 1})).await;
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    assert!(viewer.get("/dashboard/keys?status=limit_reached").await.text().contains("No keys match"));

    until_refused(&stack, &own, "key_limit_reached").await;
    until_refused(&stack, &inside, "group_limit_reached").await;
    until_refused(&stack, &pupil, "group_limit_reached").await;
    for (order, last) in
        [("", "pupil"), ("&order=asc", "wonka"), ("&order=used", "pupil"), ("&order=spent", "")]
    {
        let page = viewer.get(&format!("/dashboard/keys?status=limit_reached{order}")).await;
        for label in ["wonka", "tiny-a", "pupil", last] {
            assert!(page.text().contains(label), "{order} {label}: {page}");
        }
        assert!(!page.text().contains("fine"), "{order}: {page}");
        assert!(page.text().contains("badge short\">limit reached</span>"), "{order}: {page}");
        for name in ["Tiny team", "School"] {
            assert!(
                page.text().contains(&format!("limit of <bdi>{name}</bdi> reached</span>")),
                "{order}: {page}"
            );
        }
        assert!(page.text().contains("bar short"), "a reached limit is red: {page}");
    }
    for (key, reason) in [(&own, "by its limit: "), (&inside, "<bdi>Tiny team</bdi></a>: ")] {
        let page = viewer.get(&format!("/dashboard/keys/{}", key.id)).await;
        assert!(
            page.text().contains("<strong>Stopped</strong> by ") && page.text().contains(reason),
            "{page}"
        );
        let left = NanoUsd::from_nanos(nearly_two().nanos() - stack.used(key).await.nanos());
        assert!(left > NanoUsd::ZERO, "used to the last billionth, it would be seen without the event");
        let first = page.text().split_once("Left <strong>$").unwrap().1;
        assert!(first.starts_with(&format!("{left}<")), "the least that is left: {page}");
    }
    let page = viewer.get(&format!("/dashboard/keys/{}", inside.id)).await;
    assert!(page.text().contains("<bdi>Tiny team</bdi>: used "), "the group's limit has a bar: {page}");
    let groups = viewer.get("/dashboard/groups").await;
    assert_eq!(groups.text().matches("badge short\">limit reached</span>").count(), 2, "{groups}");
    let page = viewer.get(&format!("/dashboard/groups/{}", course["id"].as_str().unwrap())).await;
    assert!(page.text().contains("limit of <bdi>School</bdi> reached"), "{page}");

    // The API's status is unchanged, and a raised limit ends the problem.
    assert_eq!(stack.show(&own).await["status"], "active");
    let raised = stack.manage(Method::PATCH, &format!("/{}", own.id), Some(json!({"limit": 1}))).await;
    assert_eq!(raised.status, 200, "{raised}");
    let page = viewer.get("/dashboard/keys?status=limit_reached").await;
    assert!(!page.text().contains("wonka") && page.text().contains("tiny-a"), "{page}");
    assert!(
        !viewer.get(&format!("/dashboard/keys/{}", own.id)).await.text().contains("limit reached</span>")
    );
}

#[apply(fact)]
async fn keys_that_are_refused_for_a_limit_of_theirs_or_of_a_group_are_seen_and_found() {
    keys_that_are_refused_are_seen_and_found(Deployment::AllInOne).await;
}

#[apply(fact)]
async fn keys_that_are_refused_for_a_limit_of_theirs_or_of_a_group_are_seen_and_found_over_a_redis() {
    keys_that_are_refused_are_seen_and_found(Deployment::services(1, 1, Form::Alone)).await;
}

#[apply(fact)]
async fn the_first_page_a_group_and_the_list_count_the_same_keys_in_trouble() {
    const KEYS: usize = 13;
    let stack = Stack::start().await;
    let team = group(&stack, json!({"name": "Class"})).await;
    for n in 0..KEYS {
        let key =
            json!({"label": format!("pupil {n}"), "limit": number(nearly_two()), "group_id": team["id"]});
        until_refused(&stack, &stack.key_with(key).await, "key_limit_reached").await;
    }
    stack.key_with(json!({"label": "fine", "limit": 1, "group_id": team["id"]})).await;
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    let here = format!("/dashboard/groups/{}", team["id"].as_str().unwrap());
    for path in ["/dashboard", &here] {
        let page = viewer.get(path).await;
        assert!(page.text().contains(&format!("{KEYS} keys are out of budget")), "{path}: {page}");
    }
    let list = viewer.get("/dashboard/keys?status=trouble").await;
    assert!(list.text().contains(&format!("1–{KEYS} of {KEYS}")), "{list}");
}

#[apply(fact)]
async fn credit_for_less_than_a_week_stands_out_beside_every_page_from_the_first_on() {
    let stack = Stack::start().await;
    let poor = stack.open_account("poor", requests(6));
    let key = stack.key_of(&poor, json!({"label": "only"})).await;
    let mut viewer = signed_in(&stack, &poor, "viewer").await;
    let short = "class=\"balance short\"";
    assert!(!viewer.get("/dashboard").await.text().contains(short), "nothing is spent");
    for _ in 0..5 {
        assert_eq!(send(&stack, &key).await.status, 200);
    }
    for path in ["/dashboard", "/dashboard/events", "/dashboard/models"] {
        let page = viewer.get(path).await;
        assert!(page.text().contains(short) && page.text().contains("Credit, under 1 day"), "{path}: {page}");
    }
}

#[apply(fact)]
async fn a_page_that_was_opened_earlier_takes_nothing_back() {
    let stack = Stack::start().await;
    let key = stack.key_with(json!({"label": "one", "limit": 10})).await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let path = format!("/dashboard/keys/{}", key.id);
    let shown = |page: &Answer| attribute(page, "name=\"shown\" value=\"").unwrap().replace("&amp;", "&");
    let opened = shown(&owner.get(&format!("{path}/settings")).await);
    let form =
        |label, limit| [("label", label), ("limit", limit), ("resets", ""), ("shown", opened.as_str())];
    assert_eq!(owner.post(&path, &form("one", "20")).await.status, 303);
    assert_eq!(owner.post(&path, &form("two", "10")).await.status, 303);
    let object = stack.show(&key).await;
    assert_eq!((&object["label"], &object["limit"]), (&json!("two"), &json!(20)));
    let asked = owner.post(&path, &form("two", "15")).await;
    assert_eq!(asked.status, 422, "{asked}");
    let says = "Somebody else changed this while the page was open. Limit: $10.00 → $20.00.";
    assert!(asked.text().contains(says) && asked.text().contains("id=\"limit-fault\""), "{asked}");
    assert_eq!(stack.show(&key).await["limit"], 20, "asking changes nothing");
    let again = shown(&asked);
    let fields = [("label", "two"), ("limit", "15"), ("resets", ""), ("shown", again.as_str())];
    assert_eq!(owner.post(&path, &fields).await.status, 303);
    assert!(owner.get(&path).await.text().contains("Saved. Limit: $20.00 → $15.00."));

    let team = group(&stack, json!({"name": "Team", "limits": [{"amount": 20, "per": "month"}]})).await;
    let path = format!("/dashboard/groups/{}", team["id"].as_str().unwrap());
    let opened = shown(&owner.get(&format!("{path}/settings")).await);
    let fields = [("name", "Crew"), ("limit", "20"), ("resets", "month"), ("shown", opened.as_str())];
    assert_eq!(owner.post(&path, &fields).await.status, 303);
    let page = owner.get(&path).await;
    assert!(
        page.text().contains("Saved. Name: Team → Crew.") && page.text().contains("At most $20 a month."),
        "{page}"
    );
}

#[apply(fact)]
async fn a_webhook_that_gets_nothing_any_more_says_why_in_the_list_and_on_the_first_page() {
    let stack = Stack::start().await;
    let receiver = Receiver::start(|_| 410, std::time::Duration::ZERO).await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let form = attempt(&owner.get("/dashboard/webhooks").await);
    let url = receiver.url();
    assert_eq!(owner.post("/dashboard/webhooks", &[("url", &url), ("attempt", &form)]).await.status, 200);
    assert!(!owner.get("/dashboard").await.text().contains("was disabled"));
    stack.key_with(json!({"label": "new"})).await;
    receiver.until("an event arrives", |all| !all.is_empty()).await;
    let deadline = tokio::time::Instant::now() + tests::harness::PATIENCE;
    while !owner.get("/dashboard/webhooks").await.text().contains("answered 410, ") {
        assert!(tokio::time::Instant::now() < deadline, "the webhook is not disabled");
        tokio::time::sleep(tests::harness::LOOK_EVERY).await;
    }
    let list = owner.get("/dashboard/webhooks").await;
    assert!(!list.text().contains("class=\"gone\""), "it is not over, but broken: {list}");
    let page = owner.get("/dashboard").await;
    assert!(
        page.text().contains(" was disabled ")
            && page.text().contains(": it answered 410.")
            && page.text().contains(&url),
        "{page}"
    );
}

#[apply(fact)]
async fn a_model_that_is_not_offered_is_named() {
    let stack = Stack::start().await;
    let key = stack.key_with(json!({"models": ["gpt-5-minni"]})).await;
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    let page = viewer.get(&format!("/dashboard/keys/{}", key.id)).await;
    assert!(page.text().contains("gpt-5-minni is not offered; this key can call nothing."), "{page}");
    let team = group(&stack, json!({"name": "Team", "models": ["Model Flash", "other"]})).await;
    let page = viewer.get(&format!("/dashboard/groups/{}", team["id"].as_str().unwrap())).await;
    assert!(page.text().contains("other is not offered."), "{page}");
    let key = stack.key_with(json!({"models": ["Model Flash"]})).await;
    let page = viewer.get(&format!("/dashboard/keys/{}", key.id)).await;
    assert!(!page.text().contains("not offered"), "{page}");
}
