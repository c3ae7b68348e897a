//! Webhooks on the dashboard: a webhook is created, tested, disabled and deleted.

use std::time::Duration;

use tests::harness::{Receiver, Stack, usd};

use crate::dashboard::{pages::attempt, signed_in};

const PATH: &str = "/dashboard/webhooks";

#[apply(fact)]
async fn a_webhook_is_made_once_tested_disabled_and_deleted() {
    let stack = Stack::start().await;
    let receiver = Receiver::start(|_| 204, Duration::ZERO).await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let form = attempt(&owner.get(PATH).await);
    for wrong in ["", "ftp://example.com", "https://10.0.0.1/"] {
        let refused = owner.post(PATH, &[("url", wrong), ("attempt", &form)]).await;
        assert_eq!(refused.status, 422, "{wrong:?}: {refused}");
        for at_field in ["aria-invalid=\"true\"", "<p class=\"fault\" id=\"url-fault\" role=\"alert\">The "] {
            assert!(refused.text().contains(at_field), "{wrong:?}: {refused}");
        }
    }
    let url = receiver.url();
    assert_eq!(owner.post(PATH, &[("url", url.as_str())]).await.status, 403, "no form of the dashboard");
    let fields = [("url", url.as_str()), ("types", "key.revoked"), ("attempt", &form)];
    let made = owner.post(PATH, &fields).await;
    let (_, secret) = made.text().split_once("aria-label=\"Your new secret\" data-copy>").unwrap();
    let secret = secret.split('<').next().unwrap();
    assert!(secret.starts_with("whsec_"), "{made}");
    let again = owner.post(PATH, &fields).await;
    assert_eq!((again.status, again.header("location")), (303, PATH), "{again}");
    let list = owner.get(PATH).await;
    assert_eq!(list.text().matches(&url).count(), 1, "{list}");
    assert!(!list.text().contains(secret), "shown once");

    let (_, rest) = list.text().split_once("<a href=\"/dashboard/webhooks/wh_").unwrap();
    let page = format!("{PATH}/wh_{}", rest.split('"').next().unwrap());
    assert!(owner.get(&page).await.text().contains("Nothing has been sent yet."));
    assert_eq!(owner.post(&format!("{page}/test"), &[]).await.status, 303);
    let deliveries = receiver.until("the test arrives", |all| all.len() == 1).await;
    assert_eq!(deliveries[0].event()["type"], "webhook.test");
    assert_eq!(owner.post(&format!("{page}/enabled"), &[("enabled", "false")]).await.status, 303);
    assert!(owner.get(&page).await.text().contains("badge revoked"));

    let other = stack.open_account("other", usd("1"));
    let mut stranger = signed_in(&stack, &other, "owner").await;
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    assert!(!viewer.get(&page).await.text().contains("Send a test"));
    for act in ["test", "enabled", "delete"] {
        let act = format!("{page}/{act}");
        stranger.get(PATH).await;
        assert_eq!(stranger.post(&act, &[]).await.status, 404, "{act}");
        assert_eq!(viewer.post(&act, &[]).await.status, 403, "{act}");
    }
    assert_eq!(stranger.get(&page).await.status, 404);
    assert!(owner.get(&format!("{page}/delete")).await.text().contains(&url));
    assert_eq!(owner.post(&format!("{page}/delete"), &[]).await.status, 303);
    assert_eq!(owner.get(&page).await.status, 404);
}
