//! Actions: who may take them, and what the page says afterwards.

use http::Method;
use serde_json::json;
use tests::harness::{ApiKey, Browser, Stack, attribute, usd};

use super::{
    pages::{attempt, new_key},
    signed_in,
};

/// A form that changes something in the account: path and fields.
type Form = (String, Vec<(&'static str, String)>);

/// Returns every action that an owner can take in the account.
async fn acts(stack: &Stack, owner: &mut Browser, key: &ApiKey) -> Vec<Form> {
    let group = stack.cli(&["groups", "create", "--account", &stack.account.name, "--name", "Agents"]);
    let group = format!("/dashboard/groups/{}", group.trim());
    // The newest key is listed first, so the page offers to act on this one and not on the key that the harness uses.
    stack.cli(&["management-keys", "create", "--account", &stack.account.name, "--name", "spare"]);
    let management_keys = owner.get("/dashboard/management-keys").await;
    let management_key = attribute(&management_keys, "class=\"button danger\" href=\"").unwrap();
    // The first member is the owner.
    signed_in(stack, &stack.account, "ann").await;
    let members = owner.get("/dashboard/members").await;
    let member = members.text().rsplit("href=\"/dashboard/members/").next().unwrap();
    let member = member.split('"').next().unwrap();
    let (of_key, of_member) = (format!("/dashboard/keys/{}", key.id), format!("/dashboard/members/{member}"));
    let attempt = attempt(&owner.get("/dashboard/keys/new").await);
    let form = |path: &str, fields: &[(&'static str, &str)]| {
        (path.to_owned(), fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect())
    };
    let below = |path: &str, act: &str| format!("{path}/{act}");
    vec![
        form("/dashboard/keys", &[("label", "mine"), ("attempt", &attempt)]),
        form(&of_key, &[("label", "changed"), ("limit", "1000000"), ("resets", "day")]),
        form(&below(&of_key, "rotate"), &[("grace_seconds", "0"), ("attempt", &attempt)]),
        form(&below(&of_key, "revoke"), &[]),
        form("/dashboard/keys/many", &[("deed", "revoke"), ("key", &key.id)]),
        form("/dashboard/keys/many/apply", &[("deed", "revoke"), ("key", &key.id)]),
        form("/dashboard/keys/many/apply", &[("deed", "move"), ("key", &key.id), ("group_id", "")]),
        form("/dashboard/keys/many/apply", &[("deed", "extend"), ("key", &key.id), ("expires_at", "")]),
        form("/dashboard/groups", &[("name", "mine")]),
        form(&group, &[("name", "changed")]),
        form(&below(&group, "archive"), &[]),
        form(&below(&group, "revoke-keys"), &[]),
        form("/dashboard/management-keys", &[("name", "mine")]),
        form(&management_key, &[]),
        form("/dashboard/alerts", &[("rule", "refused"), ("channel", "webhook"), ("attempt", &attempt)]),
        form("/dashboard/members", &[("name", "friend"), ("role", "owner")]),
        form(&below(&of_member, "role"), &[("role", "viewer")]),
        form(&below(&of_member, "link"), &[]),
        form(&below(&of_member, "second-factor"), &[]),
        form(&below(&of_member, "remove"), &[]),
    ]
}

async fn send(browser: &mut Browser, (path, fields): &Form) -> u16 {
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    browser.post(path, &fields).await.status
}

/// Returns everything that actions could change, as owners see it.
async fn state(stack: &Stack, owner: &mut Browser) -> Vec<String> {
    let mut state = vec![stack.manage(Method::GET, "", None).await.text().to_owned()];
    for path in ["/dashboard/members", "/dashboard/groups", "/dashboard/management-keys", "/dashboard/events"]
    {
        let page = owner.get(path).await;
        let attempts = page.text().split("name=\"attempt\"").next().unwrap().len();
        // The attempt id differs on each page.
        let (_, rest) = page.text()[attempts..].split_once('>').unwrap_or_default();
        state.push(format!("{}{rest}", &page.text()[..attempts]));
    }
    state
}

#[apply(fact)]
async fn viewers_leads_strangers_visitors_and_other_sites_can_do_no_act_of_an_owner() {
    let stack = Stack::start().await;
    let key = stack.key_with(json!({"label": "Customer A"})).await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let acts = acts(&stack, &mut owner, &key).await;
    let other = stack.open_account("other", usd("5"));
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    let mut stranger = signed_in(&stack, &other, "owner").await;
    // Creates a group without keys.
    stack.cli(&["groups", "create", "--account", &stack.account.name, "--name", "Team"]);
    let invite = ["members", "invite", "--account", &stack.account.name, "--name", "lena", "--role", "lead"];
    let mut lead = Browser::at(&stack.url(""));
    lead.sign_in(&stack.cli(&[&invite[..], &["--group", "Team"]].concat())).await;
    let mut visitor = Browser::at(&stack.url(""));
    let mut foreign = owner.clone();
    "http://evil.example".clone_into(&mut foreign.origin);
    // An object that a stranger creates belongs to the stranger.
    let is_own = |path: &str| {
        ["alerts", "keys", "groups", "management-keys", "members"]
            .iter()
            .any(|noun| path.strip_prefix("/dashboard/") == Some(noun))
    };
    lead.get("/dashboard/keys").await;
    let before = state(&stack, &mut owner).await;
    for act in &acts {
        assert_eq!(send(&mut viewer, act).await, 403, "a viewer: {act:?}");
        assert_eq!(send(&mut visitor, act).await, 303, "a visitor: {act:?}");
        assert_eq!(send(&mut foreign, act).await, 403, "another site: {act:?}");
        if act.0 != "/dashboard/keys" {
            let of_keys = act.0.starts_with("/dashboard/keys/") || act.0.ends_with("/revoke-keys");
            let refused = if of_keys { 404 } else { 403 };
            assert_eq!(send(&mut lead, act).await, refused, "the lead of another group: {act:?}");
        }
        if !is_own(&act.0) {
            assert_eq!(send(&mut stranger, act).await, 404, "another account: {act:?}");
        }
    }
    for path in ["password", "second-factor", "second-factor/off"] {
        let act = (format!("/dashboard/you/{path}"), Vec::new());
        assert_eq!(send(&mut visitor, &act).await, 303, "a visitor: {act:?}");
        assert_eq!(send(&mut foreign, &act).await, 403, "another site: {act:?}");
    }
    assert_eq!(state(&stack, &mut owner).await, before);
    for act in &acts {
        let done = send(&mut owner, act).await;
        assert!(matches!(done, 200 | 303 | 400), "an owner: {done} {act:?}");
    }
    assert_ne!(state(&stack, &mut owner).await, before);
}

#[apply(fact)]
async fn an_act_says_what_it_changed_once_in_the_browser_that_did_it() {
    let stack = Stack::start().await;
    let key = stack.key_with(json!({"label": "Customer A", "limit": 25})).await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let path = format!("/dashboard/keys/{}", key.id);
    let saved = owner.post(&path, &[("label", "Customer A"), ("limit", "$5.00")]).await;
    let settings = format!("{path}/settings");
    assert_eq!((saved.status, saved.header("location")), (303, &*settings), "nothing stands in the address");
    let notice = owner.cookies["faregate-notice"].clone();
    let page = owner.get(&path).await;
    assert!(page.text().contains("role=\"status\">Saved. Limit: $25.00 → $5.00.</p>"), "{page}");
    assert!(!owner.get(&path).await.text().contains("role=\"status\""), "once");
    let nothing = owner.post(&path, &[("label", "Customer A"), ("limit", "5.00")]).await;
    assert_eq!(nothing.status, 303);
    assert!(owner.get(&path).await.text().contains("Nothing was changed."));
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    for forged in [notice.as_str(), "WW91IHdvbg.0000", "x"] {
        viewer.cookies.insert("faregate-notice".into(), forged.to_owned());
        assert!(!viewer.get(&path).await.text().contains("role=\"status\""), "{forged}");
    }
}

#[apply(fact)]
async fn a_fault_of_a_form_stands_at_its_field() {
    let stack = Stack::start().await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    for (field, value) in [
        ("limit", "1,5"),
        ("expires_at", "tomorrow"),
        ("requests_per_minute", "0"),
        ("group_id", "agents"),
        ("group_id", "grp_00000000000070008000000000000000"),
    ] {
        let attempt = attempt(&owner.get("/dashboard/keys/new").await);
        let fields = [("label", "Customer A"), (field, value), ("attempt", attempt.as_str())];
        let refused = owner.post("/dashboard/keys", &fields).await;
        assert_eq!(refused.status, 422, "{field}={value}: {refused}");
        let fault = format!("id=\"{field}-fault\" role=\"alert\">");
        assert!(refused.text().contains(&fault), "{field}={value}: {refused}");
        assert!(refused.text().contains("aria-invalid=\"true\" autofocus"), "{refused}");
    }
}

#[apply(fact)]
async fn a_key_in_trouble_is_seen_and_found() {
    let stack = Stack::start().await;
    stack.key_with(json!({"label": "fine", "limit": 1, "expires_at": "2999-12-31T23:59:59Z"})).await;
    let empty = stack.key_with(json!({"label": "wonka-batch-jobs", "limit": 0})).await;
    let revoked = stack.key_with(json!({"label": "gone", "limit": 250})).await;
    stack.manage(Method::DELETE, &format!("/{}", revoked.id), None).await;
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    let page = viewer.get("/dashboard/keys?status=limit_reached").await;
    assert!(
        page.text().contains("wonka-batch-jobs") && page.text().contains("limit reached</span>"),
        "{page}"
    );
    assert!(!page.text().contains("fine") && !page.text().contains("gone"), "{page}");
    assert!(viewer.get("/dashboard/keys?status=expires_soon").await.text().contains("No keys match"));
    assert!(
        viewer.get("/dashboard/keys?q=batch+wonka").await.text().contains(&empty.id),
        "words in any order"
    );
    let page = viewer.get(&format!("/dashboard/keys/{}", revoked.id)).await;
    assert!(!page.text().contains("Left <strong>"), "nothing is left of a revoked key: {page}");
    let page = viewer.get(&format!("/dashboard/keys/{}/revoke", revoked.id)).await;
    assert!(
        page.text().contains("was revoked") && !page.text().contains("is refused on every server"),
        "{page}"
    );
}

#[apply(fact)]
async fn a_pasted_plaintext_leads_to_its_key_and_stands_in_no_address() {
    let stack = Stack::start().await;
    let key = stack.key_with(json!({"label": "leaked key"})).await;
    let other = stack.open_account("other", usd("5"));
    let theirs = stack.key_of(&other, json!({"label": "theirs"})).await;
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    viewer.get("/dashboard/keys").await;
    let found = viewer.post("/dashboard/keys/search", &[("q", &format!(" {} ", key.secret))]).await;
    assert_eq!(found.header("location"), format!("/dashboard/keys/{}", key.id), "{found}");
    let management_key = stack.account.management_key.clone();
    let found = viewer.post("/dashboard/keys/search", &[("q", &management_key)]).await;
    assert!(found.header("location").starts_with("/dashboard/management-keys/"), "{found}");
    for unknown in [
        theirs.secret.as_str(),
        "sk-proj-0123456789abcdefghijkl",
        "0123456789abcdef0123456789abcdef",
        "whsec_BwcHBwcHBwcHBwcH/wcHB+cHBwcHBwcHBwcHBwcHBwc=",
    ] {
        let none = viewer.post("/dashboard/keys/search", &[("q", unknown)]).await;
        assert_eq!(none.header("location"), "/dashboard/keys", "{none}");
        assert!(viewer.get("/dashboard/keys").await.text().contains("No key of this account has"));
    }
    let filters = [("q", "leaked key"), ("status", "active"), ("order", "")];
    let listed = viewer.post("/dashboard/keys/search", &filters).await;
    assert_eq!(listed.header("location"), "/dashboard/keys?q=leaked+key&status=active");
    // Anything without a name must not appear in an address: a password, or a secret in an unknown format.
    for (path, list) in [("/dashboard/keys/search", "/dashboard/keys?status=active"), ("/dashboard/find", "")]
    {
        let none = viewer.post(path, &[("q", "correct horse battery"), ("status", "active")]).await;
        assert_eq!(none.header("location"), list, "{none}");
    }
    let webhook = "whsec_BwcHBwcHBwcHBwcH/wcHB+cHBwcHBwcHBwcHBwcHBwc=";
    assert_eq!(viewer.post("/dashboard/find", &[("q", webhook)]).await.header("location"), "/dashboard/keys");
    let log = stack.server().log();
    assert!(!log.contains(&key.secret) && !log.contains("battery") && !log.contains(webhook), "{log}");
}

#[apply(fact)]
async fn many_keys_are_changed_after_one_confirmation_that_names_their_number() {
    let stack = Stack::start().await;
    let group = stack.cli(&["groups", "create", "--account", &stack.account.name, "--name", "Agents"]);
    let mut ids = Vec::new();
    for label in ["one", "two", "three"] {
        ids.push(stack.key_with(json!({"label": label})).await.id);
    }
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    owner.get("/dashboard/keys").await;
    let chosen: Vec<_> = ids[..2].iter().map(|id| ("key", id.as_str())).collect();
    let of = |deed| [&[("deed", deed)], &chosen[..]].concat();
    let asked = owner.post("/dashboard/keys/many", &of("revoke")).await;
    assert!(asked.text().contains("Revoke 2 API keys?") && asked.text().contains("two"), "{asked}");
    let field = |id: &str, name: &str| {
        let path = format!("/{id}");
        let name = name.to_owned();
        let stack = &stack;
        async move { stack.manage(Method::GET, &path, None).await.json()[&name].clone() }
    };
    assert_eq!(field(&ids[0], "status").await, "active", "asking revokes nothing");
    for (deed, name, value, shown) in [
        ("move", "group_id", group.trim(), "2 API keys moved."),
        ("extend", "expires_at", "2999-12-31T23:59", "2 API keys updated with the new expiry."),
        ("revoke", "unused", "", "2 API keys revoked."),
    ] {
        let fields = [&of(deed)[..], &[(name, value)]].concat();
        assert_eq!(owner.post("/dashboard/keys/many/apply", &fields).await.status, 303);
        assert!(owner.get("/dashboard/keys").await.text().contains(shown), "{shown}");
    }
    for id in &ids[..2] {
        assert_eq!(field(id, "group_id").await, group.trim());
        assert_eq!(field(id, "expires_at").await, "2999-12-31T23:59:00Z");
        assert_eq!(field(id, "status").await, "revoked");
    }
    assert_eq!(field(&ids[2], "status").await, "active");
    let none = owner.post("/dashboard/keys/many", &[("deed", "revoke")]).await;
    assert_eq!(none.status, 303, "{none}");
    let wrong = [&of("move")[..], &[("group_id", "agents")]].concat();
    assert_eq!(owner.post("/dashboard/keys/many/apply", &wrong).await.status, 422);
}

#[apply(fact)]
async fn an_owner_can_neither_remove_itself_nor_become_a_viewer_by_itself() {
    let stack = Stack::start().await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let invite = ["members", "invite", "--account", "default", "--name", "bob", "--role", "owner"];
    let mut bob = Browser::at(&stack.url(""));
    assert_eq!(bob.sign_in(&stack.cli(&invite)).await.status, 303);
    let members = owner.get("/dashboard/members").await;
    let first = attribute(&members, "href=\"/dashboard/members/").unwrap();
    let path = format!("/dashboard/members/{first}");
    let own = owner.get(&path).await;
    assert!(own.text().contains("This is you.") && !own.text().contains("/remove\""), "{own}");
    assert_eq!(owner.post(&format!("{path}/remove"), &[]).await.status, 409);
    assert_eq!(owner.post(&format!("{path}/role"), &[("role", "viewer")]).await.status, 409);
    assert!(owner.is_signed_in().await);
    let asked = bob.get(&format!("{path}/role")).await;
    assert!(asked.text().contains("Change role") && asked.text().contains("name=\"role\""), "{asked}");
    assert_eq!(bob.post(&format!("{path}/role"), &[("role", "viewer")]).await.status, 303);
    assert!(bob.get(&path).await.text().contains("owner is now a viewer."));
    assert_eq!(owner.post("/dashboard/groups", &[("name", "mine")]).await.status, 403);
}

#[apply(fact)]
async fn a_failure_keeps_the_navigation_of_a_member() {
    let stack = Stack::start().await;
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    let missing = viewer.get("/dashboard/nothing").await;
    assert_eq!(missing.status, 404);
    assert!(missing.text().contains("aria-label=\"Dashboard\""), "{missing}");
    let missing = Browser::at(&stack.url("")).get("/dashboard/nothing").await;
    assert!(missing.status == 404 && !missing.text().contains("aria-label=\"Dashboard\""), "{missing}");
}

#[apply(fact)]
async fn bounds_of_a_key_are_set_in_its_form_and_said_together() {
    let stack = Stack::start().await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let attempt = attempt(&owner.get("/dashboard/keys/new").await);
    let fields = [
        ("label", "Student"),
        ("limit", "50"),
        ("resets", ""),
        ("limit_2", "5"),
        ("resets_2", "day"),
        ("models", "Model Flash\r\nModel Max\r\n"),
        ("requests_per_minute", "60"),
        ("attempt", attempt.as_str()),
    ];
    let made = owner.post("/dashboard/keys", &fields).await;
    assert!(new_key(&made).starts_with("fg_api_"), "{made}");
    let path = format!("/dashboard/keys/{}", attribute(&made, "data-done href=\"/dashboard/keys/").unwrap());
    let page = owner.get(&path).await;
    for text in
        ["At most $5 a day and $50 in all. At most 60 requests a minute.", "Only Model Flash, Model Max."]
    {
        assert!(page.text().contains(text), "{text}: {page}");
    }
    // A form without the fields leaves the limits unchanged; a form with empty fields removes them.
    assert_eq!(owner.post(&path, &[("label", "Pupil")]).await.status, 303);
    let page = owner.get(&path).await;
    assert!(
        page.text().contains("Saved. Label: Student → Pupil.") && page.text().contains("$5 a day"),
        "{page}"
    );
    // Unless its box is ticked, the list of models does not apply.
    for path in [path.as_str(), "/dashboard/keys"] {
        let without =
            [("label", "Pupil"), ("models", ""), ("which_models", "only"), ("attempt", attempt.as_str())];
        let refused = owner.post(path, &without).await;
        assert_eq!(refused.status, 422, "{refused}");
        assert!(
            refused.text().contains("id=\"models-fault\" role=\"alert\">Tick at least one model"),
            "{refused}"
        );
    }
    assert!(owner.get(&path).await.text().contains("Only Model Flash, Model Max."), "nothing was changed");
    let cleared =
        [("limit", ""), ("resets", ""), ("models", ""), ("which_models", "all"), ("requests_per_minute", "")];
    assert_eq!(owner.post(&path, &cleared).await.status, 303);
    let page = owner.get(&path).await;
    assert!(
        page.text().contains("limits by window: $5 a day → no limit")
            && page.text().contains("models: Model Flash, Model Max → all models")
            && !page.text().contains("At most"),
        "{page}"
    );
}

#[apply(fact)]
async fn a_limit_is_added_to_a_form_and_a_key_is_duplicated() {
    let stack = Stack::start().await;
    let bounds =
        json!({"label": "Student", "limit": 5, "models": ["Model Flash", "of later"], "max_in_flight": 3});
    let key = stack.key_with(bounds).await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let path = format!("/dashboard/keys/{}", key.id);
    let form = owner.get(&format!("{path}/settings")).await;
    assert!(form.text().contains("name=\"limit\"") && !form.text().contains("name=\"limit_2\""), "{form}");
    let fields = [("label", "Pupil"), ("limit", "7"), ("resets", ""), ("rows", "2")];
    let longer = owner.post(&path, &fields).await;
    assert!(longer.status == 200 && longer.text().contains("name=\"limit_2\""), "{longer}");
    assert!(longer.text().contains("value=\"Pupil\"") && longer.text().contains("value=\"7\""), "{longer}");
    assert_eq!(stack.show(&key).await["limit"], 5, "nothing is saved yet");

    let copy = owner.get(&format!("/dashboard/keys/new?like={}", key.id)).await;
    for text in ["value=\"Student (copy)\"", "value=\"5\"", "value=\"of later\" checked", "value=\"3\""] {
        assert!(copy.text().contains(text), "{text}: {copy}");
    }
    assert!(!copy.text().contains("value=\"Model Max\" checked"), "{copy}");
    let foreign = stack.open_account("other", usd("5"));
    let mut stranger = signed_in(&stack, &foreign, "owner").await;
    assert_eq!(stranger.get(&format!("/dashboard/keys/new?like={}", key.id)).await.status, 404);
}
