//! What owners and viewers see and do on each page, and what others do not.

use http::Method;
use serde_json::json;
use tests::{
    harness::{Account, Answer, ApiKey, Browser, Dialect, Options, PATIENCE, Stack, attribute, usd},
    upstream::Script,
};

use super::{browser::refused_calls_are_listed, first_use::pasted, replicas, signed_in};
use crate::money::budgets::{group, manage};

/// Every page without an id in its address.
const PAGES: [&str; 15] = [
    "/dashboard",
    "/dashboard/keys",
    "/dashboard/keys/new",
    "/dashboard/groups",
    "/dashboard/groups/new",
    "/dashboard/management-keys",
    "/dashboard/activity",
    "/dashboard/models",
    "/dashboard/credit",
    "/dashboard/members",
    "/dashboard/events",
    "/dashboard/webhooks",
    "/dashboard/alerts",
    "/dashboard/try-it",
    "/dashboard/you",
];

/// Labels that would have an effect if they were not treated as text.
const HOSTILE: [&str; 4] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "=cmd|' /C calc'!A0",
    "🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀",
];

/// Returns the plaintext that a page shows once.
pub(super) fn new_key(page: &Answer) -> String {
    let (_, rest) = page.text().split_once("aria-label=\"Your new key\" data-copy>").unwrap();
    rest.split('<').next().unwrap().to_owned()
}

/// Returns the form's attempt id.
pub(super) fn attempt(page: &Answer) -> String {
    attribute(page, "name=\"attempt\" value=\"").unwrap()
}

pub(super) async fn spend(stack: &Stack, key: &ApiKey) {
    let answer = stack.call(key, Script::tokens(100, 50)).send().await;
    assert_eq!(answer.status, 200, "{answer}");
}

#[apply(fact)]
async fn a_key_is_created_shown_once_edited_and_revoked() {
    let stack = replicas().await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let form = owner.get("/dashboard/keys/new").await;
    let attempt = attempt(&form);
    for (wrong, value) in
        [("limit", "-1"), ("limit", "a dollar"), ("limit", "1e300"), ("expires_at", "tomorrow")]
    {
        let refused = owner.post("/dashboard/keys", &[("label", "Customer A"), (wrong, value)]).await;
        assert_eq!(refused.status, 422, "{refused}");
        assert!(refused.text().contains("Customer A"), "what was entered stays: {refused}");
    }
    let fields = [("label", "Customer A"), ("limit", "0.30"), ("attempt", attempt.as_str())];
    let made = owner.post("/dashboard/keys", &fields).await;
    let plaintext = new_key(&made);
    assert!(plaintext.starts_with("fg_api_") && made.text().contains("/v1/chat/completions"), "{made}");
    let models = stack.http.send_as(&plaintext, Method::GET, &stack.url("/v1/models"), None).await;
    assert_eq!(models.status, 200);
    // Submitting the same form again creates no second key.
    let again = owner.post("/dashboard/keys", &fields).await;
    let path = again.header("location").to_owned();
    assert!(again.status == 303 && path.starts_with("/dashboard/keys/ak_"), "{again}");

    let page = owner.get(&path).await;
    assert!(page.text().contains("$0.30") && !page.text().contains(&plaintext), "{page}");
    let change = [("label", "Customer B"), ("limit", "25"), ("expires_at", "2999-12-31T23:59")];
    assert_eq!(owner.post(&path, &change).await.status, 303);
    let id = path.rsplit('/').next().unwrap();
    let object = stack.manage(Method::GET, &format!("/{id}"), None).await.json();
    assert_eq!((&object["label"], &object["limit"]), (&json!("Customer B"), &json!(25)));
    assert_eq!(object["expires_at"], "2999-12-31T23:59:00Z");

    let revoke = format!("{path}/revoke");
    assert!(owner.get(&revoke).await.text().contains("Customer B"));
    assert_eq!(owner.post(&revoke, &[]).await.status, 303);
    let models = stack.http.send_as(&plaintext, Method::GET, &stack.url("/v1/models"), None).await;
    models.assert_error(401, "invalid_api_key");
    assert_eq!(owner.post(&path, &change).await.status, 400, "a revoked key stays as it is");
}

#[apply(fact)]
async fn who_revokes_a_key_sees_how_many_requests_it_cuts_and_what_comes_back() {
    let stack = Stack::start().await;
    let key = stack.key_with(json!({"label": "Customer A"})).await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let revoke = format!("/dashboard/keys/{}/revoke", key.id);
    assert!(owner.get(&revoke).await.text().contains("It has no requests in flight right now."));
    let endless = || stack.call(&key, Script::tokens(12, 100_000).pace(20)).stream();
    let (mut first, mut second) = (endless().await, endless().await);
    first.read_tokens(2).await;
    second.read_tokens(2).await;
    let page = owner.get(&revoke).await;
    let (_, held) = page
        .text()
        .split_once(
            "2 requests in flight: streams are cut within five seconds, other answers are completed. $",
        )
        .unwrap();
    let (held, _) = held.split_once(" is held; the unused part is released.").unwrap();
    assert!(usd(held) > usd("0"), "{page}");
    assert_eq!(owner.post(&revoke, &[]).await.status, 303);
    for stream in [first, second] {
        stream.rest().await.assert_error(401, "invalid_api_key");
    }
}

#[apply(fact)]
async fn spend_shows_on_every_page_that_has_it_and_in_both_files() {
    let stack = replicas().await;
    let key = stack.key_with(json!({"label": "Customer A", "limit": 1})).await;
    for _ in 0..3 {
        spend(&stack, &key).await;
    }
    let used = stack.used(&key).await;
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    let of_key = format!("/dashboard/keys/{}", key.id);
    for path in [
        "/dashboard",
        "/dashboard?by=key",
        "/dashboard/keys",
        "/dashboard/keys?order=spent",
        "/dashboard/keys?order=used",
        of_key.as_str(),
    ] {
        let page = viewer.get(path).await;
        assert!(
            page.text().contains(&format!("${used}")) && page.text().contains("Customer A"),
            "{path}: {page}"
        );
    }
    let shown = stack.show(&key).await;
    let day = &shown["last_used_at"].as_str().unwrap()[..10];
    let filters = format!("?key={}&model=Model+Flash&from={day}&to={day}&outcome=captured", key.id);
    let page = viewer.get(&format!("/dashboard/activity{filters}")).await;
    assert_eq!(page.text().matches("<tr title=\"gen_").count(), 3, "{page}");
    for none in ["?outcome=shortfall", "?to=2020-01-01", "?model=Model+Max"] {
        let page = viewer.get(&format!("/dashboard/activity{none}")).await;
        assert!(page.text().contains("No requests match"), "{none}: {page}");
    }
    let csv = viewer.get(&format!("/dashboard/activity.csv{filters}")).await;
    assert_eq!((csv.status, csv.text().lines().count()), (200, 4), "{csv}");
    assert!(csv.header("content-disposition").starts_with("attachment"));
    let lines = viewer.get("/dashboard/activity.jsonl").await;
    let lines: Vec<serde_json::Value> =
        lines.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let charged: i64 = lines.iter().map(|line| tests::harness::nanos(&line["charged"]).nanos()).sum();
    assert_eq!((lines.len(), charged), (3, used.nanos()));
}

#[apply(fact)]
async fn activity_adds_up_and_finds_keys_by_label_and_generations_by_id_in_their_account_alone() {
    let stack = replicas().await;
    let key = stack.key_with(json!({"label": "Customer A"})).await;
    stack.key_with(json!({"label": "Customer B"})).await;
    spend(&stack, &key).await;
    let generation = stack.call(&key, Script::tokens(100, 50)).send().await.json()["id"].clone();
    let generation = generation.as_str().unwrap();
    let used = stack.used(&key).await;
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    for filters in ["", &format!("?key={}", key.id), "?model=Model+Flash", "?from=2020-01-01"] {
        let page = viewer.get(&format!("/dashboard/activity{filters}")).await;
        assert!(
            page.text().contains("2 requests · ") && page.text().contains(">300</span>"),
            "{filters}: {page}"
        );
        assert!(page.text().contains(&format!("title=\"${used}\"")), "{filters}: {page}");
    }
    assert!(viewer.get("/dashboard/activity?model=Model+Max").await.text().contains("0 requests · "));
    for measure in ["?show=requests", "?show=tokens&days=90", "?days=7&by=key"] {
        let page = viewer.get(&format!("/dashboard{measure}")).await;
        assert!(page.text().contains("figure class=\"chart\""), "{measure}: {page}");
    }

    let of_key = format!("/dashboard/activity?key={}", key.id);
    assert_eq!(viewer.get("/dashboard/activity?key=customer+a").await.header("location"), of_key);
    let several = viewer.get("/dashboard/activity?key=customer").await;
    assert!(several.text().contains("Customer A") && several.text().contains("Customer B"), "{several}");

    let search = format!("/dashboard/activity?generation={generation}");
    let path = format!("/dashboard/activity/{generation}");
    assert_eq!(viewer.get(&search).await.header("location"), path);
    let page = viewer.get(&path).await;
    assert!(page.text().contains(generation) && page.text().contains("Customer A"), "{page}");
    let other = stack.open_account("other", usd("5"));
    let mut stranger = signed_in(&stack, &other, "owner").await;
    assert_eq!(stranger.get(&path).await.status, 404);
    let nothing = stranger.get(&search).await;
    assert!(nothing.status == 200 && nothing.text().contains("No generation"), "{nothing}");
}

#[apply(fact)]
async fn activity_is_filtered_by_group_and_by_the_days_of_a_zone() {
    for stack in [Stack::start().await, replicas().await] {
        let course = group(&stack, json!({"name": "Course 101"})).await;
        let team = group(&stack, json!({"name": "Team A", "parent_id": course["id"]})).await;
        let inside = stack.key_with(json!({"label": "inside", "group_id": team["id"]})).await;
        let outside = stack.key_with(json!({"label": "outside"})).await;
        for key in [&inside, &inside, &outside] {
            spend(&stack, key).await;
        }
        let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
        for of in [&course, &team] {
            let query = format!("?group={}", of["id"].as_str().unwrap());
            let page = viewer.get(&format!("/dashboard/activity{query}")).await;
            assert_eq!(page.text().matches("<tr title=\"gen_").count(), 2, "{page}");
            assert!(page.text().contains("2 requests · ") && !page.text().contains("outside"), "{page}");
            assert!(
                page.text().contains(&format!(
                    " Filtered to the group <strong><bdi>{}",
                    of["name"].as_str().unwrap()
                ))
            );
            let csv = viewer.get(&format!("/dashboard/activity.csv{query}")).await;
            assert_eq!(csv.text().lines().count(), 3, "{csv}");
        }
        assert_eq!(viewer.get("/dashboard/activity?group=agents").await.status, 404);
        // The same date in a zone where it covers the requests, and in a zone where it does not.
        let at = stack.show(&outside).await["last_used_at"].as_str().unwrap().to_owned();
        let (day, hour) = (&at[..10], at[11..13].parse::<i64>().unwrap());
        let found = async |viewer: &mut Browser, ahead: i64| {
            // In these names, the sign is reversed: `Etc/GMT+5` is five hours behind UTC.
            let zone = if ahead == 0 { "UTC".to_owned() } else { format!("Etc/GMT{:+}", -ahead) };
            let chosen = viewer.post("/dashboard/theme", &[("zone", &zone)]).await;
            assert_eq!(chosen.status, 303, "{chosen}");
            let page = viewer.get(&format!("/dashboard/activity?from={day}&to={day}")).await;
            let field = format!("From ({})", zone.trim_start_matches("Etc/"));
            assert!(page.text().contains(&field), "{field}: {page}");
            let rows = page.text().matches("<tr title=\"gen_").count();
            let sum = format!("<strong>{rows} requests · ");
            assert!(rows == 0 || page.text().contains(&sum), "the sum is of the same hours: {page}");
            rows
        };
        assert_eq!(found(&mut viewer, 0).await, 3);
        // Far enough east, the next day has begun; far enough west, the current day has not begun.
        let (other, same) = if hour < 11 { (-(hour + 1), hour) } else { (24 - hour, -1) };
        assert_eq!((found(&mut viewer, other).await, found(&mut viewer, same).await), (0, 3), "at {at}");
        found(&mut viewer, 0).await;
        let page = viewer.get("/dashboard/activity").await;
        let first = attribute(&page, "name=\"from\" value=\"").unwrap();
        assert!(first.as_str() < day && page.text().contains(&format!(" from {first} to ")), "{page}");
        let all = viewer.get("/dashboard/activity?from=").await;
        assert_eq!(
            attribute(&all, "name=\"from\" value=\"").unwrap(),
            day,
            "the day of the first entry: {all}"
        );
    }
}

#[apply(fact)]
async fn the_first_steps_lead_to_a_key_that_says_how_to_use_it() {
    let stack = Stack::start().await;
    let account = stack.open_account("new", usd("5"));
    let mut owner = signed_in(&stack, &account, "owner").await;
    let page = owner.get("/dashboard").await;
    assert!(page.text().contains("Send a first request. The new key's page has commands"), "{page}");
    let key = stack.key_of(&account, json!({"label": "First"})).await;
    let page = owner.get("/dashboard").await;
    assert!(page.text().contains(&format!("href=\"/dashboard/keys/{}/use\"", key.id)), "{page}");
    let page = owner.get(&format!("/dashboard/keys/{}/use", key.id)).await;
    for text in [
        "<h2 id=\"use\">Use it</h2>",
        "/v1/chat/completions",
        "-H &quot;Authorization: Bearer $API_KEY&quot;",
        "api_key=os.environ[&quot;API_KEY&quot;]",
        "apiKey: process.env.API_KEY",
    ] {
        assert!(page.text().contains(text), "{text}: {page}");
    }
    // The commands for agents are the same as on the first screen, which a client test runs.
    let printed = stack.server().printed("if they are installed\n").await;
    let (_, screen) = printed.split_once("if they are installed\n").unwrap();
    let screen = screen.split("\n\n").next().unwrap();
    for (file, setting) in [("config.toml", "env_key = \"API_KEY\""), ("settings.json", "\"YOUR_API_KEY\"")] {
        assert!(pasted(&page, file).contains(setting), "{file}: {page}");
    }
    let chosen = owner.get(&format!("/dashboard/keys/{}/use?model=Model+Max", key.id)).await;
    assert!(pasted(&chosen, "config.toml").contains("model = \"Model Max\""), "{chosen}");
    let commands = ["Codex", "Claude Code"].map(|agent| pasted(&page, agent));
    let commands = commands.iter().flat_map(|command| command.lines());
    assert_eq!(commands.map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n"), screen);
}

#[apply(fact)]
async fn members_who_never_came_are_told_from_those_who_did() {
    for stack in [Stack::start().await, replicas().await] {
        let mut owner = signed_in(&stack, &stack.account, "owner").await;
        signed_in(&stack, &stack.account, "bob").await;
        let account = stack.account.name.as_str();
        stack.cli(&["members", "invite", "--account", account, "--name", "carol", "--role", "viewer"]);
        let page = owner.get("/dashboard/members").await;
        let row = |name: &str| {
            let (_, list) = page.text().split_once("aria-label=\"Members\"").unwrap();
            let (_, rest) = list.split_once(&format!("<bdi>{name}</bdi>")).unwrap();
            rest.split("</tr>").next().unwrap().to_owned()
        };
        assert!(
            row("carol").contains("has not signed in yet") && row("carol").contains(">not yet<"),
            "{page}"
        );
        for came in ["owner", "bob"] {
            assert!(row(came).contains("last signed in <time"), "{came}: {page}");
        }
        assert!(page.text().contains("Second factor</th>") && !page.text().contains("Joined"), "{page}");
        let carol =
            page.text().rsplit("href=\"/dashboard/members/").next().unwrap().split('"').next().unwrap();
        let page = owner.get(&format!("/dashboard/members/{carol}")).await;
        assert!(page.text().contains("has not signed in yet"), "{page}");
    }
}

#[apply(fact)]
async fn deposits_keep_their_notes_and_a_month_has_a_statement() {
    let stack = replicas().await;
    let key = stack.key_with(json!({"label": "Customer A"})).await;
    spend(&stack, &key).await;
    let note = "=Invoice <7>";
    stack.add_credit(&stack.account, usd("5"), note);
    let payment = ["--amount", "5", "--payment-id", "pay_7"];
    stack.cli(&[&["credits", "add", "--account", &stack.account.name][..], &payment].concat());
    stack.credited(&stack.account, usd("5"));
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    let page = viewer.get("/dashboard/credit").await;
    assert!(page.text().contains(">payment pay_7<"), "{page}");
    let events = viewer.get("/dashboard/events").await;
    assert!(events.text().contains("payment <bdi>pay_7</bdi>"), "{events}");
    assert!(page.text().contains("=Invoice &lt;7&gt;") && page.text().contains(">$5.00<"), "{page}");
    let csv = viewer.get("/dashboard/credit.csv").await;
    assert!(csv.text().contains(",5,") && csv.text().contains(",\"'=Invoice <7>\",\r\n"), "{csv}");
    assert!(csv.text().contains(",pay_7\r\n") || csv.text().contains(",\"pay_7\"\r\n"), "{csv}");
    let months = page.text().matches("<a href=\"/dashboard/credit/").count();
    assert!(months <= 2, "an account of minutes has statements of {months} months");
    let month = attribute(&page, "<a href=\"/dashboard/credit/").unwrap();
    let statement = viewer.get(&format!("/dashboard/credit/{month}")).await;
    let (_, credit) = page.text().split_once("<dt>Credit</dt><dd>$").unwrap();
    let credit = credit.split('<').next().unwrap();
    for shown in
        ["=Invoice &lt;7&gt;", "Model Flash", "1 request, 150 tokens", &format!("title=\"${credit}\"")]
    {
        assert!(statement.text().contains(shown), "{shown}: {statement}");
    }
    assert!(statement.text().contains(">$0.000000</span>"), "the account began without credit: {statement}");
    for none in ["2020-01", "2999-01", "2026-13", "x"] {
        assert_eq!(viewer.get(&format!("/dashboard/credit/{none}")).await.status, 404, "{none}");
    }
}

#[apply(fact)]
async fn refused_requests_are_counted_and_shown() {
    let stack = replicas().await;
    let key = stack.key_with(json!({"label": "Customer A", "limit": 0})).await;
    for _ in 0..3 {
        stack.call(&key, Script::tokens(10, 5)).send().await.assert_error(402, "key_limit_reached");
    }
    // The counts are written every ten seconds, and before a key-service stops.
    for key_service in &stack.key_services {
        key_service.terminate();
        assert!(key_service.ended().await.success());
        key_service.restart().await;
    }
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    let page = viewer.get(&format!("/dashboard/keys/{}", key.id)).await;
    assert!(page.text().contains("3 requests were refused today (UTC): limit reached"), "{page}");
    assert_eq!(page.text().matches("<tr title=\"ref_").count(), 3, "the key's latest requests: {page}");
    // The first page names the key, and links to the requests and to the key.
    let page = viewer.get("/dashboard").await;
    let reason = "<a href=\"/dashboard/activity?reason=key_limit_reached\">limit reached</a>.";
    assert!(page.text().contains(&format!("3 requests were refused today (UTC): {reason}")), "{page}");
    let named = format!("<li><a href=\"/dashboard/keys/{}\"><bdi title=\"Customer A\">", key.id);
    let requests =
        format!("<a href=\"/dashboard/activity?outcome=refused&amp;key={}\">3 refused today</a>", key.id);
    for shown in ["1 key is out of budget", &named, &requests, "needs-a-look"] {
        assert!(page.text().contains(shown), "{shown}: {page}");
    }
    assert!(viewer.get("/dashboard/keys?status=trouble").await.text().contains("Customer A"));
    for (filters, rows) in [
        ("", 3),
        ("?outcome=refused", 3),
        ("?reason=key_limit_reached&model=Model+Flash", 3),
        ("?reason=key_expired", 0),
        ("?user=nobody", 0),
        ("?outcome=captured", 0),
    ] {
        let page = viewer.get(&format!("/dashboard/activity{filters}")).await;
        assert_eq!(page.text().matches("<tr title=\"ref_").count(), rows, "{filters}: {page}");
    }
    assert_eq!(viewer.get("/dashboard/activity.csv?outcome=refused").await.status, 404);
    let listed = stack.cli(&["refusals", "list", "--account", &stack.account.name]);
    assert_eq!(listed.lines().filter(|line| line.contains("key_limit_reached")).count(), 3, "{listed}");
}

#[apply(fact)]
async fn a_generation_s_page_shows_its_course_and_what_each_kind_of_token_cost() {
    for stack in [Stack::start().await, replicas().await] {
        let key = stack.key_with(json!({"label": "Customer A"})).await;
        let call = stack.call(&key, Script::tokens(100, 50)).with("user", "u-1");
        let ended = call.stream().await.rest().await;
        ended.assert_done();
        stack.released(tests::harness::PATIENCE).await;
        let entry = &stack.journal(&stack.account)[0];
        let generation = entry["generation_id"].as_str().unwrap();
        let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
        let page = viewer.get(&format!("/dashboard/activity/{generation}")).await;
        let upstream = entry["upstream"].as_str().unwrap();
        for shown in [
            "Accepted",
            "Authorized and sent to",
            "First token",
            "chat, streamed",
            "<bdi>u-1</bdi>",
            &format!("<bdi>{upstream}</bdi>"),
            "Finish reason",
            "<th scope=\"row\">output</th><td class=\"n\">50</td>",
        ] {
            assert!(page.text().contains(shown), "{shown}: {page}");
        }
        for (filters, rows) in [
            ("?user=u-1".to_owned(), 1),
            (format!("?upstream={upstream}&user=u-1"), 1),
            ("?user=u-2".into(), 0),
            ("?upstream=elsewhere:1".into(), 0),
        ] {
            let page = viewer.get(&format!("/dashboard/activity{filters}")).await;
            assert_eq!(page.text().matches("<tr title=\"gen_").count(), rows, "{filters}: {page}");
        }
    }
}

#[apply(fact)]
async fn hostile_labels_are_shown_and_exported_as_text() {
    let stack = Stack::start().await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    for label in HOSTILE {
        let key = stack.key_with(json!({"label": label})).await;
        spend(&stack, &key).await;
        let of_key = format!("/dashboard/keys/{}", key.id);
        let revoke = format!("{of_key}/revoke");
        let activity = format!("/dashboard/activity?key={}", key.id);
        for path in ["/dashboard", "/dashboard/keys", "/dashboard/activity", &of_key, &revoke, &activity] {
            let page = owner.get(path).await;
            assert_eq!(page.status, 200, "{path}: {page}");
            assert!(!page.text().contains("<script>") && !page.text().contains("<img"), "{path}: {page}");
        }
        let invited = owner.post("/dashboard/members", &[("name", label), ("role", "viewer")]).await;
        assert_eq!(invited.status, 200, "{invited}");
        assert!(!invited.text().contains("<script>") && !invited.text().contains("<img"), "{invited}");
        assert_eq!(owner.post("/dashboard/management-keys", &[("name", label)]).await.status, 200);
    }
    for path in ["/dashboard/members", "/dashboard/management-keys"] {
        let page = owner.get(path).await;
        assert!(!page.text().contains("<script>") && !page.text().contains("<img"), "{path}: {page}");
    }
    // Characters that change the direction of text are not allowed in a label or a name.
    let turned = "\u{202e}txt.exe";
    for (path, field) in
        [("/dashboard/keys", "label"), ("/dashboard/members", "name"), ("/dashboard/management-keys", "name")]
    {
        let refused = owner.post(path, &[(field, turned)]).await;
        assert_eq!(refused.status, 422, "{path}: {refused}");
    }
    let csv = owner.get("/dashboard/activity.csv").await;
    assert!(csv.text().contains(",\"'=cmd|' /C calc'!A0\","), "{csv}");
    assert!(csv.text().contains(",\"\"\"><img src=x onerror=alert(1)>\","), "{csv}");
}

#[apply(fact)]
async fn a_viewer_sees_every_page_and_has_a_password_of_its_own() {
    let stack = Stack::start().await;
    let key = stack.key_with(json!({"label": "Customer A"})).await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    let members = owner.get("/dashboard/members").await;
    let member = attribute(&members, "href=\"/dashboard/members/").unwrap();
    let (of_key, of_member) = (format!("/dashboard/keys/{}", key.id), format!("/dashboard/members/{member}"));
    for path in PAGES.into_iter().chain([
        of_key.as_str(),
        &format!("{of_key}/revoke"),
        of_member.as_str(),
        &format!("{of_member}/role"),
        &format!("{of_member}/remove"),
    ]) {
        assert_eq!(viewer.get(path).await.status, 200, "{path}");
    }
    // A viewer may change their own password and sessions.
    viewer.get("/dashboard/you").await;
    assert_eq!(
        viewer.post("/dashboard/you/password", &[("password", "a few words that do")]).await.status,
        303
    );
    assert_eq!(viewer.post("/dashboard/you/password", &[("password", "short")]).await.status, 422);
}

#[apply(fact)]
async fn accounts_find_nothing_of_each_other_by_id_cursor_filter_or_link() {
    let stack = Stack::with(Options::default()).await;
    let other = stack.open_account("other", usd("5"));
    let mine = stack.key_with(json!({"label": "mine alone"})).await;
    let theirs = stack.key_of(&other, json!({"label": "theirs alone"})).await;
    spend(&stack, &mine).await;
    spend(&stack, &theirs).await;
    for (account, own, foreign) in [(&stack.account, &mine, &theirs), (&other, &theirs, &mine)] {
        for name in ["owner", "viewer"] {
            let mut browser = signed_in(&stack, account, name).await;
            walk(&stack, &mut browser, own, foreign).await;
        }
    }
    let (before, after) = (stack.show(&mine).await, stack.show(&theirs).await);
    assert_eq!((&before["status"], &after["status"]), (&json!("active"), &json!("active")));
    assert_eq!((&before["label"], &after["label"]), (&json!("mine alone"), &json!("theirs alone")));
    link_to(&stack, &other).await;
}

/// Requests another account's objects on every route.
async fn walk(stack: &Stack, browser: &mut Browser, own: &ApiKey, foreign: &ApiKey) {
    let (label, hint) =
        (stack.show(foreign).await["label"].clone(), stack.show(foreign).await["key_hint"].clone());
    let of_key = format!("/dashboard/keys/{}", foreign.id);
    let cursor = format!("/dashboard/keys?after=50-{}", foreign.id);
    let filter = format!("/dashboard/activity?key={}", foreign.id);
    let files = [filter.replace("activity", "activity.csv"), filter.replace("activity", "activity.jsonl")];
    let spend = format!("/dashboard/spend.csv?key={}", foreign.id);
    let open = [cursor, filter, spend, "/dashboard/activity.csv".into(), "/dashboard/keys?q=alone".into()];
    for path in PAGES.into_iter().map(str::to_owned).chain(files).chain(open) {
        let page = browser.get(&path).await;
        assert_eq!(page.status, 200, "{path}: {page}");
        for secret in [label.as_str().unwrap(), hint.as_str().unwrap()] {
            assert!(!page.text().contains(secret), "{path} tells {secret}: {page}");
        }
    }
    let found = browser.get("/dashboard/find?q=alone").await;
    assert!(
        !found.text().contains(&foreign.id) && !found.header("location").contains(&foreign.id),
        "{found}"
    );
    for part in ["requests", "settings", "use"] {
        assert_eq!(browser.get(&format!("{of_key}/{part}")).await.status, 404, "{part}");
    }
    for path in [of_key.clone(), format!("{of_key}/revoke")] {
        assert_eq!(browser.get(&path).await.status, 404, "{path}");
        browser.get("/dashboard").await;
        let answer = browser.post(&path, &[("label", "taken")]).await;
        assert!(matches!(answer.status, 403 | 404), "{path}: {answer}");
    }
    assert_eq!(browser.get(&format!("/dashboard/keys/{}", own.id)).await.status, 200);
}

/// Checks that a link into one account signs in only to that account, and that its members are not members of other
/// accounts.
async fn link_to(stack: &Stack, other: &Account) {
    let mut stranger = signed_in(stack, other, "owner").await;
    let mut owner = signed_in(stack, &stack.account, "owner").await;
    let member = attribute(&owner.get("/dashboard/members").await, "href=\"/dashboard/members/").unwrap();
    stranger.get("/dashboard/members").await;
    for act in ["link", "role", "remove"] {
        let answer =
            stranger.post(&format!("/dashboard/members/{member}/{act}"), &[("role", "viewer")]).await;
        assert_eq!(answer.status, 404, "{act}: {answer}");
    }
    assert!(owner.is_signed_in().await);
}

#[apply(fact)]
async fn a_request_is_found_by_the_id_of_its_answer_in_any_api() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    for dialect in Dialect::ALL {
        let answer = stack.call(&key, Script::tokens(12, 5)).speaking(dialect).send().await;
        let id = answer.json()["id"].as_str().unwrap().to_owned();
        viewer.get("/dashboard").await;
        let found = viewer.post("/dashboard/find", &[("q", &id)]).await;
        let bill = format!("/dashboard/activity?generation={}", answer.header("x-generation-id"));
        assert_eq!(found.header("location"), bill, "{dialect:?} {id}: {found}");
    }
}

#[apply(fact)]
async fn a_bill_and_a_refused_call_are_found_by_the_id_of_their_request() {
    let stack = replicas().await;
    let (payer, poor) = (stack.key().await, stack.key_with(json!({"limit": 0})).await);
    let served = stack.call(&payer, Script::tokens(12, 5)).send().await;
    assert_eq!(served.status, 200, "{served}");
    let refused = stack.call(&poor, Script::tokens(12, 5)).send().await;
    assert_eq!(refused.status, 402, "{refused}");
    stack.released(PATIENCE).await;
    refused_calls_are_listed(&stack).await;
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    for (list, answer, key) in [("generations", &served, &payer), ("refusals", &refused, &poor)] {
        let id = answer.header("x-request-id");
        for listed in ["generations", "refusals"] {
            let page = manage(&stack, Method::GET, &format!("/{listed}?request_id={id}"), None).await;
            let found = page.json()["data"].clone();
            let ids = found.as_array().unwrap().iter().map(|one| (&one["request_id"], &one["key_id"]));
            let expected = [(&json!(id), &json!(key.id))];
            assert_eq!(ids.collect::<Vec<_>>(), if listed == list { &expected[..] } else { &[] }, "{page}");
        }
        viewer.get("/dashboard").await;
        let found = viewer.post("/dashboard/find", &[("q", id)]).await;
        let page = viewer.get(found.header("location")).await;
        assert_eq!(page.text().matches(&format!(", {id}")).count(), 1, "{found} {page}");
        assert_eq!(page.text().matches("<tr title=").count(), 1, "{page}");
    }
    let page = viewer.get(&format!("/dashboard/activity/{}", served.header("x-generation-id"))).await;
    assert!(page.text().contains(served.header("x-request-id")), "{page}");
    let unknown = viewer.get("/dashboard/activity?request=req_1").await;
    assert!(unknown.text().contains("is not a request id"), "{unknown}");
}

#[apply(fact)]
async fn members_are_invited_change_roles_and_leave_but_an_owner_stays() {
    let stack = replicas().await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let invited = owner.post("/dashboard/members", &[("name", "ann@example.com"), ("role", "viewer")]).await;
    let (_, rest) = invited.text().split_once("aria-label=\"Sign-in link\" data-copy>").unwrap();
    let link = rest.split('<').next().unwrap().to_owned();
    assert!(link.starts_with("http://127.0.0.1:"), "{link}");
    let mut ann = Browser::at(&stack.url(""));
    assert_eq!(ann.sign_in(&link).await.status, 303);
    let taken = owner.post("/dashboard/members", &[("name", "ann@example.com"), ("role", "viewer")]).await;
    assert_eq!(taken.status, 422, "{taken}");

    let page = owner.get("/dashboard/members").await;
    let members: Vec<String> = page
        .text()
        .split("href=\"/dashboard/members/")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap().to_owned())
        .collect();
    let (first, last) = (&members[0], members.last().unwrap());
    assert_eq!(owner.post(&format!("/dashboard/members/{first}/remove"), &[]).await.status, 409);
    assert_eq!(
        owner.post(&format!("/dashboard/members/{first}/role"), &[("role", "viewer")]).await.status,
        409
    );
    ann.get("/dashboard").await;
    assert_eq!(ann.post("/dashboard/management-keys", &[("name", "mine")]).await.status, 403);
    assert_eq!(
        owner.post(&format!("/dashboard/members/{last}/role"), &[("role", "owner")]).await.status,
        303
    );
    assert_eq!(ann.post("/dashboard/management-keys", &[("name", "mine")]).await.status, 200, "an owner now");
    let told = owner.get("/dashboard/events?type=member.role_changed").await;
    assert!(told.text().contains("<bdi>ann@example.com</bdi>, viewer → owner"), "{told}");
    let by = owner.get("/dashboard/events?by=OWNER").await;
    assert!(by.text().contains(">member.role_changed</span>"), "{by}");
    let by = owner.get("/dashboard/events?by=nobody").await;
    assert!(by.text().contains("No events match."), "{by}");
    assert_eq!(owner.post(&format!("/dashboard/members/{last}/remove"), &[]).await.status, 303);
    assert!(!ann.is_signed_in().await);
}
