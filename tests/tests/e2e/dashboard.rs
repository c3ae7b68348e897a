//! The dashboard, through the gateway's address as browsers reach it.

mod acts;
mod attacks;
mod browser;
mod first_use;
pub(crate) mod keys;
mod lead;
mod lists;
mod pages;
mod sample;
pub(super) mod second_factor;
mod signing_in;
mod sums;
mod tasks;
pub(crate) mod told;

use tests::harness::{Account, Browser, Deployment, Form, Options, Stack};

/// Returns a browser in which this member is signed in. Members are created as needed; `owner` is an owner.
pub(super) async fn signed_in(stack: &Stack, account: &Account, name: &str) -> Browser {
    let link = if name == "owner" {
        stack.cli(&["sign-in-link", "--account", &account.name])
    } else {
        stack.cli(&["members", "invite", "--account", &account.name, "--name", name, "--role", "viewer"])
    };
    let mut browser = Browser::at(&stack.url(""));
    let answer = browser.sign_in(&link).await;
    assert_eq!((answer.status, answer.header("location")), (303, "/dashboard"), "{answer}");
    assert!(browser.is_signed_in().await);
    browser
}

/// Starts two gateways and two key-services. Each must know what the other has created.
async fn replicas() -> Stack {
    Stack::with(Options { deployment: Deployment::services(1, 2, Form::Alone), ..Options::default() }).await
}

#[apply(fact)]
async fn the_first_run_prints_a_link_that_signs_the_owner_in() {
    let stack = Stack::start().await;
    let printed = stack.server().printed("/sign-in/link#").await;
    let link = printed.lines().find(|line| line.contains("/sign-in/link#")).unwrap();
    let mut browser = Browser::at(&stack.url(""));
    assert_eq!(browser.get("/dashboard").await.header("location"), "/dashboard/sign-in");
    assert_eq!(browser.sign_in(link).await.status, 303);
    let page = browser.get("/dashboard/management-keys").await;
    assert!(page.text().contains("$10.00") && page.text().contains("owner"), "{page}");
}

#[apply(fact)]
async fn a_session_holds_on_every_replica_and_through_a_restart() {
    let stack = replicas().await;
    let mut browser = signed_in(&stack, &stack.account, "owner").await;
    for _ in 0..4 {
        assert!(browser.is_signed_in().await);
    }
    stack.key_services[0].restart().await;
    stack.key_services[1].restart().await;
    assert!(browser.is_signed_in().await);
    assert_eq!(browser.post("/dashboard/sign-out", &[]).await.status, 303);
    for _ in 0..4 {
        assert!(!browser.is_signed_in().await);
    }
}

#[apply(fact)]
async fn pages_carry_the_headers_of_a_careful_site_and_assets_are_kept() {
    let stack = Stack::start().await;
    let mut browser = signed_in(&stack, &stack.account, "owner").await;
    let page = browser.get("/dashboard/management-keys").await;
    let policy = page.header("content-security-policy");
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("cache-control", "no-store"),
        ("referrer-policy", "same-origin"),
        ("x-content-type-options", "nosniff"),
        ("content-type", "text/html; charset=utf-8"),
    ] {
        assert_eq!(page.header(name), value);
    }
    page.assert_request_id();
    for beginning in ["rel=\"stylesheet\" href=\"", "script src=\""] {
        let path = tests::harness::attribute(&page, beginning).unwrap();
        let asset = Browser::at(&stack.url("")).get(&path).await;
        assert_eq!(
            (asset.status, asset.header("cache-control")),
            (200, "public, max-age=31536000, immutable")
        );
    }
    assert!(!page.text().contains(" style=") && !page.text().contains(" onclick"), "nothing is inline");
    assert_eq!(browser.get("/dashboard/nothing").await.status, 404);
    assert_eq!(browser.get("/dashboard/assets/dashboard-0.css").await.status, 404);
}
