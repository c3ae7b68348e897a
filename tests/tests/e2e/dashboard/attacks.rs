//! Signing in as an attacker would try it.

use tests::harness::{Answer, Browser, Options, Stack};

use super::{replicas, signed_in};

const SECRET: &str = "correct horse battery staple";

/// A browser at the page that asks for a password.
async fn visitor(stack: &Stack) -> Browser {
    let mut browser = Browser::at(&stack.url(""));
    assert_eq!(browser.get("/dashboard/sign-in").await.status, 200);
    browser
}

async fn try_password(browser: &mut Browser, account: &str, name: &str, password: &str) -> Answer {
    let fields = [("account", account), ("name", name), ("password", password)];
    browser.post("/dashboard/sign-in", &fields).await
}

/// The key of a session's cookie.
fn session(browser: &Browser) -> String {
    browser.cookies["faregate"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_link_signs_in_once_whichever_replica_is_asked() {
    let stack = replicas().await;
    let link = stack.cli(&["sign-in-link", "--account", "default"]);
    let mut first = Browser::at(&stack.url(""));
    assert_eq!(first.sign_in(&link).await.status, 303);
    for _ in 0..4 {
        let mut second = Browser::at(&stack.url(""));
        let refused = second.sign_in(&link).await;
        assert_eq!(refused.status, 403, "{refused}");
        assert!(refused.text().contains("was used or has expired"), "{refused}");
        assert!(!second.is_signed_in().await);
    }
    assert!(first.is_signed_in().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn opening_a_link_does_not_use_it_and_made_up_links_are_refused() {
    let stack = Stack::start().await;
    let link = stack.cli(&["sign-in-link", "--account", "default"]);
    let path = format!("/dashboard/sign-in{}", &link.trim()[link.find('?').unwrap()..]);
    for _ in 0..3 {
        assert_eq!(Browser::at(&stack.url("")).get(&path).await.status, 200);
    }
    let (beginning, end) = link.trim().split_at(link.trim().len() - 4);
    for forged in
        ["http://x/?link=", "http://x/?link=abc", &format!("{beginning}AAAA"), &format!("{beginning}{end}A")]
    {
        let mut browser = Browser::at(&stack.url(""));
        assert_eq!(browser.sign_in(forged).await.status, 403, "{forged}");
        assert!(!browser.is_signed_in().await);
    }
    assert_eq!(Browser::at(&stack.url("")).sign_in(&link).await.status, 303);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_session_that_an_attacker_has_fixed_is_not_the_one_that_is_signed_in() {
    let stack = Stack::start().await;
    let mut attacker = signed_in(&stack, &stack.account, "mallory").await;
    let fixed = session(&attacker);
    let mut victim = Browser::at(&stack.url(""));
    victim.cookies.insert("faregate".into(), fixed.clone());
    let link = stack.cli(&["sign-in-link", "--account", "default"]);
    assert_eq!(victim.sign_in(&link).await.status, 303);
    assert_ne!(session(&victim), fixed);
    assert!(!attacker.is_signed_in().await, "the session before has ended");
    // One that the server never made.
    let mut victim = Browser::at(&stack.url(""));
    let made_up = format!("{}AAAA", &fixed[..60]);
    victim.cookies.insert("faregate".into(), made_up.clone());
    assert!(!victim.is_signed_in().await);
    let link = stack.cli(&["sign-in-link", "--account", "default"]);
    assert_eq!(victim.sign_in(&link).await.status, 303);
    assert_ne!(session(&victim), made_up);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn forms_of_other_sites_and_forged_tokens_change_nothing() {
    let stack = Stack::start().await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let (ours, token) = (owner.origin.clone(), owner.token.clone());
    let create = [("name", "stolen")];
    for origin in ["http://evil.example", "null", &format!("{ours}.evil.example"), "http://127.0.0.1"] {
        origin.clone_into(&mut owner.origin);
        let refused = owner.post("/dashboard/management-keys", &create).await;
        assert_eq!(refused.status, 403, "{origin}: {refused}");
    }
    owner.origin = String::new();
    owner.headers.push(("sec-fetch-site", "cross-site".into()));
    assert_eq!(owner.post("/dashboard/management-keys", &create).await.status, 403);
    owner.headers.clear();
    owner.origin = ours;
    let of_another = signed_in(&stack, &stack.account, "viewer").await.token;
    for forged in ["", "0", &token.to_uppercase(), &of_another] {
        forged.clone_into(&mut owner.token);
        let refused = owner.post("/dashboard/management-keys", &create).await;
        assert_eq!(refused.status, 403, "{forged}: {refused}");
    }
    owner.token = token;
    let page = owner.get("/dashboard/management-keys").await;
    assert!(!page.text().contains("stolen"), "{page}");
    assert_eq!(owner.post("/dashboard/management-keys", &create).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_stolen_cookie_is_worth_nothing_after_sign_out_and_after_removal() {
    let stack = replicas().await;
    let mut ann = signed_in(&stack, &stack.account, "ann").await;
    let mut thief = ann.clone();
    assert!(thief.is_signed_in().await);
    assert_eq!(ann.post("/dashboard/sign-out", &[]).await.header("location"), "/dashboard/sign-in");
    assert!(!ann.cookies.contains_key("faregate"));
    assert!(!thief.is_signed_in().await && !thief.is_signed_in().await);

    let mut bob = signed_in(&stack, &stack.account, "bob").await;
    stack.cli(&["members", "remove", "--account", "default", "--name", "bob"]);
    assert!(!bob.is_signed_in().await && !bob.is_signed_in().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn guesses_are_stopped_alike_for_known_and_unknown_names() {
    let stack = Stack::start().await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    owner.get("/dashboard/you").await;
    let set = owner.post("/dashboard/you/password", &[("password", SECRET)]).await;
    assert_eq!(set.status, 303, "{set}");
    let mut right = visitor(&stack).await;
    assert_eq!(try_password(&mut right, "default", "owner", SECRET).await.status, 303);
    assert!(right.is_signed_in().await);

    let mut answers = Vec::new();
    for name in ["owner", "nobody"] {
        let mut browser = visitor(&stack).await;
        for _ in 0..11 {
            let refused = try_password(&mut browser, "default", name, "a wrong password").await;
            answers.push((refused.status, refused.text().replace(name, "…").replace(&browser.token, "")));
        }
    }
    let (known, unknown) = answers.split_at(11);
    assert_eq!(known, unknown);
    assert_eq!((known[9].0, known[10].0), (403, 429));
    // Nor does the right one help now, until the time is over; a link does.
    let mut browser = visitor(&stack).await;
    assert_eq!(try_password(&mut browser, "default", "owner", SECRET).await.status, 429);
    let link = stack.cli(&["sign-in-link", "--account", "default"]);
    assert_eq!(browser.sign_in(&link).await.status, 303);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn guesses_from_one_network_are_stopped_whatever_address_and_name_they_use() {
    let env = vec![("FAREGATE_TRUST_PROXY", "true".to_owned())];
    let stack = Stack::with(Options { env, ..Options::default() }).await;
    let mut browser = visitor(&stack).await;
    for number in 0..61 {
        browser.headers = vec![("x-forwarded-for", format!("2001:db8:1:2::{number:x}"))];
        let refused =
            try_password(&mut browser, "default", &format!("name {number}"), "a wrong password").await;
        assert_eq!(refused.status, if number < 60 { 403 } else { 429 }, "attempt {number}: {refused}");
    }
    // The network beside it is another one, as is an address of the older kind.
    for address in ["2001:db8:1:3::1", "203.0.113.7"] {
        browser.headers = vec![("x-forwarded-for", address.into())];
        assert_eq!(try_password(&mut browser, "default", "someone", "a wrong password").await.status, 403);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn behind_tls_cookies_are_secure_and_bound_to_the_host() {
    let env = vec![("FAREGATE_TRUST_PROXY", "true".to_owned())];
    let stack = Stack::with(Options { env, ..Options::default() }).await;
    let mut browser = Browser::at(&stack.url(""));
    browser.headers = vec![
        ("x-forwarded-proto", "https".into()),
        ("x-forwarded-host", "faregate.example".into()),
        ("x-forwarded-for", "203.0.113.7".into()),
    ];
    browser.origin = "https://faregate.example".into();
    let link = stack.cli(&["sign-in-link", "--account", "default"]);
    let answer = browser.sign_in(&link).await;
    assert_eq!(answer.status, 303, "{answer}");
    let cookie = answer.header("set-cookie");
    assert!(cookie.starts_with("__Host-faregate=") && cookie.contains("; Secure"), "{cookie}");
    assert!(cookie.contains("; Path=/;") && !cookie.contains("Domain"), "{cookie}");
    assert!(browser.is_signed_in().await);
}
