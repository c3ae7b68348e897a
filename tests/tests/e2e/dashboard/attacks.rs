//! Attacks on signing in.

use tests::harness::{Answer, Browser, Deployment, Form, Options, Stack, raw};

use super::{replicas, signed_in};

const SECRET: &str = "correct horse battery staple";

/// Returns a browser at the page that asks for a password.
async fn visitor(stack: &Stack) -> Browser {
    let mut browser = Browser::at(&stack.url(""));
    assert_eq!(browser.get("/dashboard/sign-in").await.status, 200);
    browser
}

async fn try_password(browser: &mut Browser, account: &str, name: &str, password: &str) -> Answer {
    let fields = [("account", account), ("name", name), ("password", password)];
    browser.post("/dashboard/sign-in", &fields).await
}

/// Returns the name of the session cookie.
fn session(browser: &Browser) -> String {
    browser.cookies["faregate"].clone()
}

#[apply(fact)]
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

#[apply(fact)]
async fn opening_a_link_does_not_use_it_and_made_up_links_are_refused() {
    let stack = Stack::start().await;
    let link = stack.cli(&["sign-in-link", "--account", "default"]);
    for _ in 0..3 {
        let opened = Browser::at(&stack.url("")).open_link(&link).await;
        assert_eq!(opened.status, 200, "{opened}");
        assert!(
            opened.text().contains("<bdi>owner</bdi>") && opened.text().contains("<bdi>default</bdi>"),
            "{opened}"
        );
    }
    let (beginning, end) = link.trim().split_at(link.trim().len() - 4);
    for forged in
        ["http://x/#", "http://x/#abc", "abc", &format!("{beginning}AAAA"), &format!("{beginning}{end}A")]
    {
        let mut browser = Browser::at(&stack.url(""));
        assert_eq!(browser.sign_in(forged).await.status, 403, "{forged}");
        assert!(!browser.is_signed_in().await);
    }
    assert_eq!(Browser::at(&stack.url("")).sign_in(&link).await.status, 303);
}

#[apply(fact)]
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
    // The server never issued this cookie.
    let mut victim = Browser::at(&stack.url(""));
    let made_up = format!("{}AAAA", &fixed[..60]);
    victim.cookies.insert("faregate".into(), made_up.clone());
    assert!(!victim.is_signed_in().await);
    let link = stack.cli(&["sign-in-link", "--account", "default"]);
    assert_eq!(victim.sign_in(&link).await.status, 303);
    assert_ne!(session(&victim), made_up);
}

#[apply(fact)]
async fn forms_of_other_sites_and_forged_tokens_change_nothing() {
    let stack = Stack::start().await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let (ours, token) = (owner.origin.clone(), owner.token.clone());
    let create = [("name", "stolen")];
    let over_tls = ours.replace("http://", "https://");
    let suffixed = format!("{ours}.evil.example");
    for origin in ["http://evil.example", "null", &suffixed, "http://127.0.0.1", &over_tls] {
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

#[apply(fact)]
async fn a_stolen_cookie_is_worth_nothing_after_sign_out_and_after_removal() {
    let stack = replicas().await;
    let mut ann = signed_in(&stack, &stack.account, "ann").await;
    let mut thief = ann.clone();
    assert!(thief.is_signed_in().await);
    assert_eq!(
        ann.post("/dashboard/sign-out", &[]).await.header("location"),
        "/dashboard/sign-in?reason=out"
    );
    assert!(!ann.cookies.contains_key("faregate"));
    assert!(!thief.is_signed_in().await && !thief.is_signed_in().await);

    let mut bob = signed_in(&stack, &stack.account, "bob").await;
    stack.cli(&["members", "remove", "--account", "default", "--name", "bob"]);
    assert!(!bob.is_signed_in().await && !bob.is_signed_in().await);
}

#[apply(fact)]
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
            answers.push((
                refused.status,
                refused.text().replace(&format!("value=\"{name}\""), "…").replace(&browser.token, ""),
            ));
        }
    }
    let (known, unknown) = answers.split_at(11);
    assert_eq!(known, unknown);
    assert_eq!((known[9].0, known[10].0), (403, 429));
    // Even the right password does not help until the lock has ended, but a link does.
    let mut browser = visitor(&stack).await;
    assert_eq!(try_password(&mut browser, "default", "owner", SECRET).await.status, 429);
    let link = stack.cli(&["sign-in-link", "--account", "default"]);
    assert_eq!(browser.sign_in(&link).await.status, 303);
}

#[apply(fact)]
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
    // The neighbouring network is counted separately, and so is an IPv4 address.
    for address in ["2001:db8:1:3::1", "203.0.113.7"] {
        browser.headers = vec![("x-forwarded-for", address.into())];
        assert_eq!(try_password(&mut browser, "default", "someone", "a wrong password").await.status, 403);
    }
}

#[apply(fact)]
async fn pages_are_served_at_no_foreign_name_where_the_public_address_is_known() {
    let known = vec![("FAREGATE_PUBLIC_URL", "http://faregate.example:8080".to_owned())];
    for (deployment, env) in [
        (Deployment::AllInOne, known.clone()),
        (Deployment::services(1, 1, Form::Alone), known.clone()),
        (Deployment::AllInOne, Vec::new()),
    ] {
        let is_known = !env.is_empty();
        let stack = Stack::with(Options { deployment, env, ..Options::default() }).await;
        let base = stack.url("");
        let status = async |path: &str, host: &str| {
            let answer =
                raw(&base, &format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"))
                    .await;
            (answer.split(' ').nth(1).unwrap_or_default().parse::<u16>().unwrap(), answer)
        };
        for path in ["/dashboard/sign-in", "/operator/sign-in"] {
            for host in
                ["faregate.example:8080", "FAREGATE.example", "localhost:8080", "127.0.0.1:8080", "[::1]"]
            {
                assert_eq!(status(path, host).await.0, 200, "{path} {host}");
            }
            for host in ["evil.example:8080", "faregate.example.evil.example"] {
                let (status, answer) = status(path, host).await;
                assert_eq!(status, if is_known { 421 } else { 200 }, "{path} {host}");
                assert!(!is_known || answer.contains("FAREGATE_PUBLIC_URL"), "{answer}");
            }
        }
        assert_eq!(status("/health", "evil.example").await.0, 200, "only pages have hosts");
    }
}

#[apply(fact)]
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
    assert_eq!(answer.header("strict-transport-security"), "max-age=31536000");
    assert!(browser.is_signed_in().await);
}

/// Returns the browser of the owner, who now has a password.
async fn with_password(stack: &Stack) -> Browser {
    let mut owner = signed_in(stack, &stack.account, "owner").await;
    owner.get("/dashboard/you").await;
    let set = owner.post("/dashboard/you/password", &[("password", SECRET)]).await;
    assert_eq!(set.status, 303, "{set}");
    owner
}

#[apply(fact)]
async fn guesses_keep_no_member_out_of_a_browser_in_which_it_signed_in_before() {
    let env = vec![("FAREGATE_TRUST_PROXY", "true".to_owned())];
    let stack = Stack::with(Options { env, ..Options::default() }).await;
    let at = |address: &str| vec![("x-forwarded-for", address.to_owned())];
    let mut owner = with_password(&stack).await;
    owner.headers = at("203.0.113.7");
    assert_eq!(owner.post("/dashboard/sign-out", &[]).await.status, 303);
    // Ten addresses guess the name, and guesses at invented names use up all attempts of the owner's own address.
    let mut guesser = visitor(&stack).await;
    for guess in 0..100 {
        guesser.headers = at(&format!("198.51.100.{}", guess / 10));
        assert_eq!(try_password(&mut guesser, "default", "owner", "a wrong password").await.status, 403);
    }
    for guess in 0..61 {
        guesser.headers = at("203.0.113.7");
        let refused =
            try_password(&mut guesser, "default", &format!("name {guess}"), "a wrong password").await;
        assert_eq!(refused.status, if guess < 60 { 403 } else { 429 });
    }
    guesser.headers = at("192.0.2.1");
    assert_eq!(try_password(&mut guesser, "default", "owner", SECRET).await.status, 429);
    let mark = owner.cookies.keys().find(|name| name.starts_with("faregate-known-")).unwrap().clone();
    assert!(!owner.is_signed_in().await, "the mark signs no one in");
    owner.get("/dashboard/sign-in").await;
    assert_eq!(try_password(&mut owner, "default", "owner", SECRET).await.status, 303);
    // A mark belongs to one member, and cannot be forged.
    guesser.cookies.insert(mark.clone(), owner.cookies[&mark].replace('.', "A."));
    assert_eq!(try_password(&mut guesser, "default", "owner", SECRET).await.status, 429);
    // Even in the known browser, the number of guesses is limited.
    let mut thief = owner.clone();
    thief.get("/dashboard/sign-in").await;
    for guess in 0..11 {
        let refused = try_password(&mut thief, "default", "owner", "a wrong password").await;
        assert_eq!(refused.status, if guess < 10 { 403 } else { 429 });
    }
}

#[apply(fact)]
async fn a_proxy_that_is_not_trusted_is_named_in_the_log_when_all_behind_it_are_refused() {
    let stack = Stack::start().await;
    let mut browser = visitor(&stack).await;
    let refused = async |browser: &mut Browser| {
        for _ in 0..11 {
            try_password(browser, "default", "owner", "a wrong password").await;
        }
        stack.server().log()
    };
    assert!(!refused(&mut browser).await.contains("FAREGATE_TRUST_PROXY"));
    browser.headers = vec![("x-forwarded-for", "203.0.113.7".into())];
    let log = refused(&mut browser).await;
    assert!(log.contains("WARN") && log.contains("FAREGATE_TRUST_PROXY"), "{log}");
}

#[apply(fact)]
async fn the_key_services_own_port_believes_no_one_but_a_gateway() {
    let stack = Stack::start().await;
    let mut browser = Browser::at(stack.server().address("key-http"));
    for token in [None, Some("made-up")] {
        browser.headers = vec![
            ("x-forwarded-proto", "https".into()),
            ("x-forwarded-host", "faregate.example".into()),
            ("x-forwarded-for", "203.0.113.7".into()),
        ];
        browser.headers.extend(token.map(|token| ("x-internal-token", token.to_owned())));
        let page = browser.get("/dashboard/sign-in").await;
        assert!(!page.header("set-cookie").contains("Secure"), "{page}");
    }
    for guess in 0..61 {
        browser.headers = vec![("x-forwarded-for", format!("198.51.100.{guess}"))];
        let refused =
            try_password(&mut browser, "default", &format!("name {guess}"), "a wrong password").await;
        assert_eq!(refused.status, if guess < 60 { 403 } else { 429 }, "{refused}");
    }
    // A gateway's client gains nothing by presenting a token itself, and cannot make the key-service distrust the
    // gateway.
    let mut through = Browser::at(&stack.url(""));
    through.headers = vec![
        ("x-internal-token", "made-up".into()),
        ("connection", "x-internal-token, x-forwarded-for".into()),
        ("x-forwarded-proto", "https".into()),
    ];
    let page = through.get("/dashboard/sign-in").await;
    assert!(!page.header("set-cookie").contains("Secure"), "{page}");
    assert_eq!(through.get("/dashboard/sign-in").await.header("strict-transport-security"), "");
}

#[apply(fact)]
async fn a_new_password_asks_for_the_old_one_and_ends_links_and_other_sessions() {
    let stack = replicas().await;
    let link = stack.cli(&["sign-in-link", "--account", "default"]);
    // Only a member's newest link works.
    let mut owner = with_password(&stack).await;
    assert_eq!(Browser::at(&stack.url("")).sign_in(&link).await.status, 403);
    let link = stack.cli(&["sign-in-link", "--account", "default"]);
    let mut elsewhere = visitor(&stack).await;
    assert_eq!(try_password(&mut elsewhere, "default", "owner", SECRET).await.status, 303);
    let second = "some other words then";
    let page = elsewhere.get("/dashboard/you").await;
    assert!(page.text().contains("Current password") && page.text().contains("with your password"), "{page}");
    for present in ["", "a wrong password", second] {
        let fields = [("present", present), ("password", second)];
        let refused = elsewhere.post("/dashboard/you/password", &fields).await;
        assert_eq!(refused.status, 403, "{refused}");
        assert!(refused.text().contains("The current password is wrong."), "{refused}");
    }
    let fields = [("present", SECRET), ("password", second)];
    assert_eq!(elsewhere.post("/dashboard/you/password", &fields).await.status, 303);
    assert!(elsewhere.is_signed_in().await && !owner.is_signed_in().await);
    for _ in 0..2 {
        let refused = Browser::at(&stack.url("")).open_link(&link).await;
        assert_eq!(refused.status, 403, "{refused}");
    }
    // An operator's link helps a member who forgot the password.
    let link = stack.cli(&["sign-in-link", "--account", "default"]);
    let mut back = Browser::at(&stack.url(""));
    assert_eq!(back.sign_in(&link).await.status, 303);
    let page = back.get("/dashboard/you").await;
    assert!(
        !page.text().contains("Current password") && page.text().contains("with a link from an operator"),
        "{page}"
    );
    assert_eq!(back.post("/dashboard/you/password", &[("password", SECRET)]).await.status, 303);
}

#[apply(fact)]
async fn a_member_sees_a_link_that_another_owner_made_and_it_replaces_no_password() {
    let stack = Stack::start().await;
    let mut owner = with_password(&stack).await;
    let invite = ["members", "invite", "--account", "default", "--name", "bob", "--role", "owner"];
    let mut bob = Browser::at(&stack.url(""));
    assert_eq!(bob.sign_in(&stack.cli(&invite)).await.status, 303);
    let members = bob.get("/dashboard/members").await;
    let member = tests::harness::attribute(&members, "href=\"/dashboard/members/").unwrap();
    let made = bob
        .post(&format!("/dashboard/members/{}", member.split('/').next().unwrap().to_owned() + "/link"), &[])
        .await;
    let (_, rest) = made.text().split_once("aria-label=\"Sign-in link\" data-copy>").unwrap();
    let link = rest.split('<').next().unwrap().to_owned();
    let mut posing = Browser::at(&stack.url(""));
    assert_eq!(posing.sign_in(&link).await.status, 303);
    let page = posing.get("/dashboard/you").await;
    assert!(page.text().contains("Current password"), "{page}");
    let refused = posing.post("/dashboard/you/password", &[("password", "words of someone else")]).await;
    assert_eq!(refused.status, 403, "{refused}");
    assert_eq!(posing.post("/dashboard/sign-out", &[]).await.status, 303);
    let page = owner.get("/dashboard/you").await;
    assert!(page.text().contains("<bdi>bob</bdi> made a sign-in link for you"), "{page}");
}

#[apply(fact)]
async fn names_with_characters_that_no_one_sees_are_refused() {
    let stack = Stack::start().await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    for name in ["own\u{200b}er", "owner\u{feff}", "o\u{ad}wner", "own\u{2060}er", "a\u{a0}b", "x\u{2029}y"] {
        for path in ["/dashboard/members", "/dashboard/management-keys"] {
            owner.get(path).await;
            let refused = owner.post(path, &[("name", name), ("role", "viewer")]).await;
            assert_eq!(refused.status, 422, "{path} {name:?}: {refused}");
        }
    }
}
