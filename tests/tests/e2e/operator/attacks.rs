//! Attacks on signing in as an operator.

use tests::harness::{Browser, Options, Stack, attribute};

use super::{SECOND_FACTOR, newcomer, open_link, operator, sign_in};
use crate::dashboard::second_factor::{code, enrol_at};

#[apply(fact)]
async fn a_link_works_once_and_asks_for_a_code_once_there_is_a_second_factor() {
    let stack = Stack::start().await;
    let first = stack.cli(&["operators", "create", "--name", "ann"]);
    for _ in 0..2 {
        let opened = open_link(&mut Browser::at(&stack.url("")), &first).await;
        assert!(opened.status == 200 && opened.text().contains("<bdi>ann</bdi>"), "{opened}");
    }
    let mut ann = Browser::at(&stack.url(""));
    assert_eq!(sign_in(&mut ann, &first, "").await.status, 303);
    assert_eq!(sign_in(&mut Browser::at(&stack.url("")), &first, "").await.status, 403, "a link works once");
    let (app, recovery) = enrol_at(SECOND_FACTOR, &mut ann, "").await;
    assert_eq!(ann.get(SECOND_FACTOR).await.status, 303, "the secret is shown once");

    let link = stack.cli(&["operators", "sign-in-link", "--name", "ann"]);
    let mut browser = Browser::at(&stack.url(""));
    assert!(open_link(&mut browser, &link).await.text().contains("name=\"code\""));
    for wrong in ["", "000000", "in-1"] {
        let refused = sign_in(&mut browser, &link, wrong).await;
        assert!(
            refused.status == 403 && refused.text().contains("code is wrong or was already used"),
            "{refused}"
        );
        assert_eq!(browser.get("/operator").await.status, 303);
    }
    assert_eq!(
        sign_in(&mut browser, &link, &code(&app, 1)).await.status,
        303,
        "a wrong code leaves the link"
    );
    assert_eq!(browser.get("/operator").await.status, 200);
    let earlier = stack.cli(&["operators", "sign-in-link", "--name", "ann"]);
    let later = stack.cli(&["operators", "sign-in-link", "--name", "ann"]);
    assert_eq!(sign_in(&mut browser, &earlier, &recovery[0]).await.status, 403, "a later link voids it");
    assert_eq!(sign_in(&mut Browser::at(&stack.url("")), &later, &recovery[0]).await.status, 303);
}

#[apply(fact)]
async fn guesses_at_a_code_are_stopped_after_ten() {
    let stack = Stack::start().await;
    let mut ann = newcomer(&stack, "ann").await;
    let (app, _) = enrol_at(SECOND_FACTOR, &mut ann, "").await;
    let link = stack.cli(&["operators", "sign-in-link", "--name", "ann"]);
    for guess in 0..11 {
        let mut thief = Browser::at(&stack.url(""));
        let refused = sign_in(&mut thief, &link, &format!("00000{}", guess % 10)).await;
        assert_eq!(refused.status, if guess < 10 { 403 } else { 429 }, "guess {guess}: {refused}");
    }
    assert_eq!(sign_in(&mut Browser::at(&stack.url("")), &link, &code(&app, 1)).await.status, 429);
    assert_eq!(ann.get("/operator").await.status, 200, "who is signed in goes on");
}

#[apply(fact)]
async fn links_and_sessions_of_members_are_none_of_operators_and_made_up_ones_neither() {
    let stack = Stack::start().await;
    let of_member = stack.cli(&["sign-in-link", "--account", "default"]);
    let of_operator = stack.cli(&["operators", "create", "--name", "ann"]);
    let mut browser = Browser::at(&stack.url(""));
    assert_eq!(sign_in(&mut browser, &of_member, "").await.status, 403);
    assert_eq!(browser.sign_in(&of_operator).await.status, 403);
    let link = of_operator.trim();
    for forged in ["x", "http://x/#abc", &link[..link.len() - 4], &format!("{link}A")] {
        assert_eq!(sign_in(&mut browser, forged, "").await.status, 403, "{forged}");
    }
    assert_eq!(sign_in(&mut browser, &of_operator, "").await.status, 303, "nothing of that used it up");
    let session = browser.cookies["faregate-operator"].clone();
    for made_up in [format!("{}AAAA", &session[..60]), "x".into(), String::new()] {
        let mut thief = Browser::at(&stack.url(""));
        thief.cookies.insert("faregate-operator".into(), made_up);
        assert_eq!(thief.get(SECOND_FACTOR).await.header("location"), "/operator/sign-in");
    }
}

#[apply(fact)]
async fn forms_of_other_sites_and_forged_tokens_sign_no_operator_in_or_out() {
    let stack = Stack::start().await;
    let link = stack.cli(&["operators", "create", "--name", "ann"]);
    let mut victim = Browser::at(&stack.url(""));
    victim.get("/operator/sign-in").await;
    let (ours, token) = (victim.origin.clone(), victim.token.clone());
    "http://evil.example".clone_into(&mut victim.origin);
    assert_eq!(victim.post("/operator/sign-in/use", &[("link", link.trim())]).await.status, 403);
    victim.origin = ours;
    victim.token = "0".into();
    assert_eq!(victim.post("/operator/sign-in/use", &[("link", link.trim())]).await.status, 403);
    victim.token = token;
    assert_eq!(victim.post("/operator/sign-in/use", &[("link", link.trim())]).await.status, 303);
    let mut foreign = victim.clone();
    victim.get(SECOND_FACTOR).await;
    "http://evil.example".clone_into(&mut foreign.origin);
    for (path, fields) in [
        ("/operator/sign-out", vec![]),
        ("/operator/theme", vec![("theme", "dark")]),
        (SECOND_FACTOR, vec![("code", "1")]),
    ] {
        assert_eq!(foreign.post(path, &fields).await.status, 403, "{path}");
    }
    assert_eq!(victim.get(SECOND_FACTOR).await.status, 200);
    let mut thief = victim.clone();
    assert_eq!(victim.post("/operator/sign-out", &[]).await.header("location"), "/operator/sign-in");
    assert_eq!(thief.get(SECOND_FACTOR).await.status, 303, "the session has ended for the thief too");
}

#[apply(fact)]
async fn a_removed_operator_is_out_at_once_and_may_be_made_again() {
    let stack = Stack::start().await;
    let mut ann = operator(&stack, "ann").await;
    assert!(stack.cli(&["operators", "list"]).contains("ann"));
    stack.cli(&["operators", "remove", "--name", "ann"]);
    assert_eq!(ann.get("/operator").await.status, 303);
    let (status, _, error) =
        stack.server().settings().try_cli(&["operators", "sign-in-link", "--name", "ann"]);
    assert!(!status.success() && error.contains("--name: there is no such operator"), "{error}");
    newcomer(&stack, "ann").await;
    let (status, _, error) = stack.server().settings().try_cli(&["operators", "create", "--name", "ann"]);
    assert!(!status.success() && error.contains("an operator with this name already exists"), "{error}");
}

#[apply(fact)]
async fn pages_carry_the_headers_of_a_careful_site_and_behind_tls_the_cookie_is_bound_to_the_host() {
    let env = vec![("FAREGATE_TRUST_PROXY", "true".to_owned())];
    let stack = Stack::with(Options { env, ..Options::default() }).await;
    let link = stack.cli(&["operators", "create", "--name", "ann"]);
    let mut browser = Browser::at(&stack.url(""));
    browser.headers = vec![
        ("x-forwarded-proto", "https".into()),
        ("x-forwarded-host", "faregate.example".into()),
        ("x-forwarded-for", "203.0.113.7".into()),
    ];
    browser.origin = "https://faregate.example".into();
    let answer = sign_in(&mut browser, &link, "").await;
    let cookie = answer.header("set-cookie");
    assert!(cookie.starts_with("__Host-faregate-operator=") && cookie.contains("; Secure"), "{cookie}");
    assert!(
        cookie.contains("SameSite=Lax") && cookie.contains("HttpOnly") && !cookie.contains("Domain"),
        "{cookie}"
    );
    assert_eq!(answer.header("strict-transport-security"), "max-age=31536000");
    let page = browser.get(SECOND_FACTOR).await;
    let policy = page.header("content-security-policy");
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    for (name, value) in
        [("cache-control", "no-store"), ("referrer-policy", "same-origin"), ("x-frame-options", "DENY")]
    {
        assert_eq!(page.header(name), value);
    }
    assert!(attribute(&page, "rel=\"stylesheet\" href=\"").is_some());
    assert!(page.header("access-control-allow-origin").is_empty(), "no other site reads it");
}
