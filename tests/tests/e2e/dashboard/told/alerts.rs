//! Alerts on the dashboard: an alert is created, tested, disabled and deleted, by owners only.

use std::time::Duration;

use tests::harness::{Receiver, Stack, usd};

use crate::dashboard::{pages::attempt, signed_in};

const PATH: &str = "/dashboard/alerts";

#[apply(fact)]
async fn an_alert_is_made_once_tested_disabled_and_deleted_by_owners_alone() {
    let stack = Stack::start().await;
    let of_slack = Receiver::start(|_| 200, Duration::ZERO).await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let form = attempt(&owner.get(PATH).await);
    let url = of_slack.url();
    let fields = |channel: &'static str, to: &'static str, threshold: &'static str| {
        vec![("rule", "limit_share"), ("channel", channel), ("to", to), ("threshold", threshold)]
    };
    for (fields, field) in [
        (fields("slack", "", ""), "to"),
        (fields("slack", "https://10.0.0.1/", ""), "to"),
        (fields("webhook", "x", ""), "to"),
        (fields("email", "ops@example.com", ""), "channel"),
        (fields("webhook", "", "81"), "threshold"),
        (fields("webhook", "", "much"), "threshold"),
    ] {
        let fields = [fields, vec![("attempt", form.as_str())]].concat();
        let refused = owner.post(PATH, &fields).await;
        assert_eq!(refused.status, 422, "{fields:?}: {refused}");
        let fault = format!("<p class=\"fault\" id=\"{field}-fault\" role=\"alert\">");
        assert!(refused.text().contains(&fault), "{fields:?}: {refused}");
    }
    let fields =
        [("label", "Budgets"), ("rule", "refused"), ("channel", "slack"), ("to", &url), ("attempt", &form)];
    let made = owner.post(PATH, &fields).await;
    assert_eq!(made.status, 303, "{made}");
    let page = made.header("location").to_owned();
    assert!(page.starts_with("/dashboard/alerts/alr_"), "{page}");
    assert_eq!(owner.post(PATH, &fields).await.header("location"), PATH);
    let list = owner.get(PATH).await;
    assert_eq!(list.text().matches("Budgets</bdi>").count(), 1, "{list}");
    assert!(owner.get(&page).await.text().contains("Nothing has been sent yet."));
    assert_eq!(owner.post(&format!("{page}/test"), &[]).await.status, 303);
    let sent = of_slack.until("the test arrives", |all| all.len() == 1).await;
    assert!(sent[0].event()["text"].as_str().unwrap().starts_with("*Budgets: this is a test*"));
    for path in [PATH, &page] {
        let shown = owner.get(path).await;
        assert!(!shown.text().contains("/hook"), "the address is secret: {shown}");
    }
    assert_eq!(owner.post(&format!("{page}/enabled"), &[("enabled", "false")]).await.status, 303);
    assert!(owner.get(&page).await.text().contains("badge revoked"));

    let other = stack.open_account("other", usd("1"));
    let mut stranger = signed_in(&stack, &other, "owner").await;
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    assert!(!viewer.get(&page).await.text().contains("Send a test"));
    viewer.get(PATH).await;
    assert_eq!(viewer.post(PATH, &fields).await.status, 403);
    for act in ["test", "enabled", "delete"] {
        let act = format!("{page}/{act}");
        stranger.get(PATH).await;
        assert_eq!(stranger.post(&act, &[]).await.status, 404, "{act}");
        assert_eq!(viewer.post(&act, &[]).await.status, 403, "{act}");
    }
    assert_eq!(stranger.get(&page).await.status, 404);
    assert!(owner.get(&format!("{page}/delete")).await.text().contains("Budgets"));
    assert_eq!(owner.post(&format!("{page}/delete"), &[]).await.status, 303);
    assert_eq!(owner.get(&page).await.status, 404);
}
