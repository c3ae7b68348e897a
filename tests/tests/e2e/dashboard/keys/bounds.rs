//! Limits on what one owner may create.

use bench::attack::filling::{empty, fill, made};
use http::Method;
use serde_json::json;
use tests::{
    harness::{Deployment, FLASH, Form, MAX, Options, PATIENCE, Stack, attribute},
    upstream::Script,
};
use tokio::time::{Instant, sleep};

use crate::{dashboard::signed_in, money::budgets::group};

#[apply(fact)]
async fn a_form_makes_a_key_only_with_an_attempt_that_a_page_wrote() {
    let stack = Stack::start().await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let form = owner.get("/dashboard/keys/new").await;
    let attempt = attribute(&form, "name=\"attempt\" value=\"").unwrap();
    assert_eq!(attempt.len(), 64);
    let before = stack.manage(Method::GET, "", None).await.json();
    for wrong in ["", "x", &attempt[1..], &format!("{attempt}0"), &"g".repeat(64), &"0".repeat(32_000)] {
        let refused = owner.post("/dashboard/keys", &[("label", "mine"), ("attempt", wrong)]).await;
        assert_eq!(refused.status, 400, "{} bytes: {refused}", wrong.len());
    }
    assert_eq!(stack.manage(Method::GET, "", None).await.json(), before);
    let made = owner.post("/dashboard/keys", &[("label", "mine"), ("attempt", &attempt)]).await;
    assert_eq!(made.status, 200, "{made}");
}

#[apply(fact)]
async fn the_page_of_models_counts_the_keys_that_may_call_each() {
    let stack = Stack::start().await;
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    assert!(!viewer.get("/dashboard/models").await.text().contains("Allowed for"), "there is no key");
    stack.key_with(json!({"label": "any"})).await;
    let page = viewer.get("/dashboard/models").await;
    assert!(page.text().contains("Allowed for 1 of 1 active key."), "{page}");
    stack.key_with(json!({"label": "one", "models": [FLASH]})).await;
    let parent = group(&stack, json!({"name": "Course", "models": [MAX]})).await;
    let child = group(&stack, json!({"name": "Class", "parent_id": parent["id"]})).await;
    stack.key_with(json!({"label": "pupil", "group_id": child["id"]})).await;
    let page = viewer.get("/dashboard/models").await;
    let allowed = |model: &str| {
        let (_, row) = page.text().split_once(&format!("<bdi>{model}</bdi>")).unwrap();
        row.split("Allowed for ").nth(1).unwrap().split('.').next().unwrap()
    };
    assert_eq!([FLASH, MAX].map(allowed), ["2 of 3 active keys"; 2], "{page}");
}

#[apply(fact)]
async fn an_account_has_a_hundred_members_and_management_keys_at_most() {
    for deployment in [Deployment::AllInOne, Deployment::services(1, 1, Form::Alone)] {
        let stack = Stack::with(Options { deployment, ..Options::default() }).await;
        let mut owner = signed_in(&stack, &stack.account, "owner").await;
        // The account already had the owner, and the key that the harness uses.
        assert_eq!(made(&mut owner, "/dashboard/members").await, 99);
        let full = owner.post("/dashboard/members", &[("name", "one more"), ("role", "viewer")]).await;
        assert!(full.status == 422 && full.text().contains("at most 100 members"), "{full}");
        let keys = made(&mut owner, "/dashboard/management-keys").await;
        let page = owner.get("/dashboard/management-keys").await;
        assert_eq!(page.text().matches("<th scope=\"row\">").count(), 100, "{keys} were made");
    }
}

#[apply(fact)]
async fn a_redis_that_is_nearly_full_takes_nothing_new_and_serves_chats() {
    let deployment = Deployment::Services { gateways: 1, key_services: 1, redis: Form::Alone };
    let stack = Stack::with(Options { deployment, ..Options::default() }).await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let key = stack.key().await;
    let form = owner.get("/dashboard/keys/new").await;
    let attempt = attribute(&form, "name=\"attempt\" value=\"").unwrap();
    fill(&stack);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let refused = stack.manage(Method::POST, "", Some(json!({}))).await;
        if refused.status != 201 {
            refused.assert_error(503, "store_full");
            break;
        }
        assert!(Instant::now() < deadline, "it is not noticed");
        sleep(tests::harness::LOOK_EVERY).await;
    }
    for (path, fields) in [
        ("/dashboard/keys", vec![("label", "mine"), ("attempt", attempt.as_str())]),
        ("/dashboard/members", vec![("name", "someone"), ("role", "viewer")]),
        ("/dashboard/management-keys", vec![("name", "mine"), ("attempt", attempt.as_str())]),
    ] {
        let refused = owner.post(path, &fields).await;
        assert!(refused.status == 503 && refused.text().contains("nearly full"), "{path}: {refused}");
    }
    for _ in 0..20 {
        assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
    }
    // Existing objects can be changed and ended.
    let changed = stack.manage(Method::PATCH, &format!("/{}", key.id), Some(json!({"limit": 5}))).await;
    assert_eq!(changed.status, 200, "{changed}");
    empty(&stack);
    let deadline = Instant::now() + PATIENCE;
    while stack.manage(Method::POST, "", Some(json!({}))).await.status != 201 {
        assert!(Instant::now() < deadline, "it is not noticed that there is room again");
        sleep(tests::harness::LOOK_EVERY).await;
    }
}
