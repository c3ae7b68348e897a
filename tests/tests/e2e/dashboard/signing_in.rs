//! Reaching a page by signing in.

use tests::harness::{Browser, Stack};

use super::signed_in;

#[apply(fact)]
async fn a_link_to_a_page_leads_there_after_signing_in() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let page = format!("/dashboard/keys/{}?x=a%20b", key.id);
    let mut visitor = Browser::at(&stack.url(""));
    let asked = visitor.get(&page).await;
    assert_eq!(asked.status, 303);
    let sign_in = asked.header("location").to_owned();
    assert!(sign_in.starts_with("/dashboard/sign-in?to=%2Fdashboard%2Fkeys%2Fak_"), "{sign_in}");
    assert_eq!(visitor.get(&sign_in).await.status, 200);
    let link = stack.cli(&["sign-in-link", "--account", "default"]);
    assert_eq!(visitor.sign_in(&link).await.header("location"), page);
    assert_eq!(visitor.get(&sign_in).await.header("location"), page, "who is signed in goes on");
    assert_eq!(visitor.get("/dashboard/sign-in").await.header("location"), "/dashboard");
}

#[apply(fact)]
async fn a_new_link_ends_the_earlier_one_and_the_command_says_so() {
    let stack = Stack::start().await;
    let command = ["sign-in-link", "--account", "default"];
    let earlier = stack.cli(&command);
    let (status, link, said) = stack.server().settings().try_cli(&command);
    assert!(status.success() && said.contains("no longer works"), "{said}");
    assert_eq!(link.lines().count(), 1, "scripts take the output for the link");
    let mut visitor = Browser::at(&stack.url(""));
    assert_ne!(visitor.sign_in(&earlier).await.status, 303);
    assert_eq!(visitor.sign_in(&link).await.status, 303);
}

#[apply(fact)]
async fn signing_in_leads_to_no_other_site() {
    let stack = Stack::start().await;
    for foreign in [
        "https%3A%2F%2Fevil.example",
        "%2F%2Fevil.example",
        "%2Fdashboard%2F%2Fevil.example",
        "%2Fdashboard%2F..%2Fv1%2Fmodels",
    ] {
        let mut visitor = Browser::at(&stack.url(""));
        visitor.get(&format!("/dashboard/sign-in?to={foreign}")).await;
        assert!(!visitor.cookies.contains_key("faregate-destination"), "{foreign}");
        visitor.cookies.insert("faregate-destination".into(), "//evil.example".into());
        let link = stack.cli(&["sign-in-link", "--account", "default"]);
        assert_eq!(visitor.sign_in(&link).await.header("location"), "/dashboard", "{foreign}");
    }
}

#[apply(fact)]
async fn who_was_signed_out_is_told() {
    let stack = Stack::start().await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let mut elsewhere = owner.clone();
    assert_eq!(
        owner.post("/dashboard/sign-out", &[]).await.header("location"),
        "/dashboard/sign-in?reason=out"
    );
    let asked = elsewhere.get("/dashboard/credit").await;
    let sign_in = asked.header("location").to_owned();
    assert_eq!(sign_in, "/dashboard/sign-in?to=%2Fdashboard%2Fcredit&reason=ended");
    let page = elsewhere.get(&sign_in).await;
    assert!(page.text().contains("You were signed out. Sign in to continue."), "{page}");
    let page = elsewhere.get("/dashboard/sign-in?reason=%3Cb%3EHello").await;
    assert!(page.status == 200 && !page.text().contains("Hello"), "{page}");
    assert_eq!(elsewhere.get("/dashboard").await.header("location"), "/dashboard/sign-in", "it is told once");
}
