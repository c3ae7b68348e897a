//! A member's second factor, from setting it up to losing it.

use shared::clock::{Clock, System};
use tests::harness::{Answer, Browser, Stack, attribute};
use totp_rs::{Builder, Secret, Totp};

use super::{replicas, signed_in};

const PAGE: &str = "/dashboard/you/second-factor";
const PASSWORD: &str = "correct horse battery staple";

/// Returns an app's code, this many steps from now.
pub(crate) fn code(app: &Totp, steps: u64) -> String {
    let now = u64::try_from(System.now().seconds()).unwrap();
    app.generate(now + 30 * steps).to_string()
}

/// Sets up a second factor; returns the app and the recovery codes.
async fn enrol(browser: &mut Browser, present: &str) -> (Totp, Vec<String>) {
    enrol_at(PAGE, browser, present).await
}

/// Sets up a second factor on the page at this address.
pub(crate) async fn enrol_at(page: &str, browser: &mut Browser, present: &str) -> (Totp, Vec<String>) {
    let offered = browser.get(page).await;
    assert!(
        offered.text().contains("<svg class=\"qr\"") && offered.text().contains("otpauth://totp/Faregate:")
    );
    let secret = offered.text().split_once("Or enter the secret by hand:").unwrap().1;
    let secret = secret.split_once("data-copy>").unwrap().1.split('<').next().unwrap();
    let app = Builder::new().with_secret(Secret::try_from_base32(secret).unwrap()).build_noncompliant();
    let factor = attribute(&offered, "name=\"factor\" value=\"").unwrap();
    let with = |code| [("factor", factor.as_str()), ("code", code), ("present", present)];
    let wrong = browser.post(page, &with("000000")).await;
    assert_eq!(wrong.status, 403, "{wrong}");
    assert!(
        wrong.text().contains(secret) && wrong.text().contains("id=\"code-fault\" role=\"alert\""),
        "{wrong}"
    );
    let done = browser.post(page, &with(&code(&app, 0))).await;
    assert_eq!(done.status, 200, "{done}");
    let codes = done.text().split_once("aria-label=\"Your recovery codes\" data-copy>").unwrap().1;
    let codes: Vec<_> = codes.split('<').next().unwrap().lines().map(str::to_owned).collect();
    assert_eq!(codes.len(), 10);
    (app, codes)
}

/// Enters account, name and password.
async fn give_password(browser: &mut Browser) -> Answer {
    browser.get("/dashboard/sign-in").await;
    let fields = [("account", "default"), ("name", "owner"), ("password", PASSWORD)];
    browser.post("/dashboard/sign-in", &fields).await
}

#[apply(fact)]
async fn a_password_and_a_link_ask_for_a_code_that_works_once_on_every_replica() {
    let stack = replicas().await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let mut elsewhere = signed_in(&stack, &stack.account, "owner").await;
    owner.get("/dashboard/you").await;
    assert_eq!(owner.post("/dashboard/you/password", &[("password", PASSWORD)]).await.status, 303);
    let (app, recovery) = enrol(&mut owner, PASSWORD).await;
    assert!(owner.is_signed_in().await && !elsewhere.is_signed_in().await);
    assert!(!owner.get(PAGE).await.text().contains("otpauth:"), "the secret is shown once");

    let mut browser = Browser::at(&stack.url(""));
    let asked = give_password(&mut browser).await;
    assert_eq!(asked.status, 200, "{asked}");
    assert!(!browser.is_signed_in().await, "a password alone begins no session");
    let again = browser.get("/dashboard/sign-in").await;
    assert!(again.text().contains("required value=\"default\""), "the account is entered: {again}");
    let asked = give_password(&mut browser).await;
    let challenge = attribute(&asked, "name=\"challenge\" value=\"").unwrap();
    let sign_in = "/dashboard/sign-in/code";
    let (used, next) = (code(&app, 0), code(&app, 1));
    let with = |code| [("challenge", challenge.as_str()), ("code", code)];
    let mut thief = Browser::at(&stack.url(""));
    thief.get("/dashboard/sign-in").await;
    assert_eq!(thief.post(sign_in, &with(&next)).await.status, 403, "a challenge is of one browser");
    let mut second = browser.clone();
    for wrong in ["000000", "", recovery[0].trim_end_matches(char::is_alphanumeric)] {
        let refused = browser.post(sign_in, &with(wrong)).await;
        assert!(
            refused.status == 403 && refused.text().contains("code is wrong or was already used"),
            "{refused}"
        );
    }
    assert_eq!(browser.post(sign_in, &with(&next)).await.status, 303);
    assert!(browser.is_signed_in().await);
    for again in [next.as_str(), used.as_str()] {
        assert_eq!(second.post(sign_in, &with(again)).await.status, 403, "a code works once");
    }
    assert_eq!(second.post(sign_in, &with(&recovery[0])).await.status, 303);

    let link = stack.cli(&["sign-in-link", "--account", "default"]);
    let mut third = Browser::at(&stack.url(""));
    assert!(third.open_link(&link).await.text().contains("name=\"code\""));
    let with = |code| [("link", link.trim()), ("code", code)];
    for spent in ["", recovery[0].as_str()] {
        assert_eq!(third.post("/dashboard/sign-in/link/use", &with(spent)).await.status, 403);
    }
    assert_eq!(third.post("/dashboard/sign-in/link/use", &with(&recovery[1])).await.status, 303);
    assert!(third.get("/dashboard/you").await.text().contains("Unused recovery codes: 8."));

    let with = |code, present| [("code", code), ("present", present)];
    let off = "/dashboard/you/second-factor/off";
    assert_eq!(third.post(off, &with(recovery[2].as_str(), "wrong")).await.status, 403);
    assert_eq!(third.post(off, &with("000000", PASSWORD)).await.status, 403);
    assert_eq!(third.post(off, &with(recovery[2].as_str(), PASSWORD)).await.status, 303);
    assert_eq!(give_password(&mut Browser::at(&stack.url(""))).await.status, 303);
}

#[apply(fact)]
async fn a_lost_second_factor_is_removed_by_another_owner_or_an_operator() {
    let stack = Stack::start().await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let mut ann = signed_in(&stack, &stack.account, "ann").await;
    enrol(&mut ann, "").await;
    let members = owner.get("/dashboard/members").await;
    let ann_page = members.text().rsplit("href=\"/dashboard/members/").next().unwrap();
    let path = format!("/dashboard/members/{}/second-factor", ann_page.split('"').next().unwrap());
    assert!(owner.get(&path).await.text().contains("Remove the second factor of"));
    assert_eq!(ann.post(&path, &[]).await.status, 403, "a viewer removes none, not even the own");
    assert_eq!(owner.post(&path, &[]).await.status, 303);
    assert_eq!(owner.post(&path, &[]).await.status, 400, "there is none any more");
    let events = owner.get("/dashboard/events").await;
    for told in ["member.second_factor_enabled", "member.second_factor_removed"] {
        assert!(
            events.text().contains(&format!("<span class=\"badge\">{told}</span> <bdi>ann</bdi>")),
            "{events}"
        );
    }
    enrol(&mut owner, "").await;
    let own = path.replace(
        ann_page.split('"').next().unwrap(),
        &attribute(&members, "href=\"/dashboard/members/").unwrap(),
    );
    assert_eq!(owner.post(&own, &[]).await.status, 409, "the own takes a code");
    let remove = ["members", "remove-second-factor", "--account", "default", "--name", "owner"];
    assert!(stack.cli(&remove).contains("has been removed"));
    let link = stack.cli(&["sign-in-link", "--account", "default"]);
    assert_eq!(Browser::at(&stack.url("")).sign_in(&link).await.status, 303);
}
