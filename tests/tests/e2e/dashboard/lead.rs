//! A group's lead sees and manages the group's keys, and reaches nothing else in the account.

use http::Method;
use serde_json::{Value, json};
use tests::{
    harness::{ApiKey, Browser, Stack, attribute},
    upstream::Script,
};

use super::{
    pages::{attempt, new_key},
    signed_in,
};
use crate::money::budgets::{group, number, requests, send};

/// Texts that a lead must not read: names and labels of objects that the lead may not reach, and the users in their
/// requests.
const FOREIGN: [&str; 4] = ["Secret project", "secret-key", "Division", "secret-user"];

/// An account with a group that has a lead, and with many things that the lead must not see.
pub(super) struct Led {
    pub(super) stack: Stack,
    pub(super) lead: Browser,
    pub(super) owner: Browser,
    pub(super) own: String,
    pub(super) child: String,
    pub(super) other: String,
    pub(super) another: String,
    pub(super) inside: ApiKey,
    pub(super) below: ApiKey,
    pub(super) outside: ApiKey,
    /// A key that left the lead's group after it was used.
    pub(super) gone: ApiKey,
}

/// A form with its path and fields, and the expected status.
type LeadForm<'a> = (String, Vec<(&'a str, &'a str)>, u16);

fn id(object: &Value) -> String {
    object["id"].as_str().unwrap().to_owned()
}

pub(super) async fn led() -> Led {
    let stack = Stack::start().await;
    let another = id(&group(&stack, json!({"name": "Division", "limit": 9_000})).await);
    let other = id(&group(&stack, json!({"name": "Secret project"})).await);
    let own = id(&group(&stack, json!({"name": "Team", "limit": 7, "external_id": "team-7"})).await);
    let child = id(&group(&stack, json!({"name": "Interns", "parent_id": own})).await);
    let key =
        async |label: &str, group: &str| stack.key_with(json!({"label": label, "group_id": group})).await;
    let (inside, below) = (key("team-key", &own).await, key("intern-key", &child).await);
    let (outside, gone) = (key("secret-key", &other).await, key("moved-away", &own).await);
    for key in [&inside, &below, &outside, &gone] {
        let user = if key.id == outside.id { "secret-user" } else { "team-user" };
        assert_eq!(stack.call(key, Script::tokens(12, 5)).with("user", user).send().await.status, 200);
    }
    let moved = stack.manage(Method::PATCH, &format!("/{}", gone.id), Some(json!({"group_id": other}))).await;
    assert_eq!(moved.status, 200, "{moved}");
    let owner = signed_in(&stack, &stack.account, "owner").await;
    let invite = ["members", "invite", "--account", &stack.account.name, "--name", "lena", "--role", "lead"];
    let link = stack.cli(&[&invite[..], &["--group", "Team"]].concat());
    let mut lead = Browser::at(&stack.url(""));
    assert_eq!(lead.sign_in(&link).await.header("location"), "/dashboard");
    Led { stack, lead, owner, own, child, other, another, inside, below, outside, gone }
}

async fn shown(stack: &Stack, key: &str) -> Value {
    let answer = stack.manage(Method::GET, &format!("/{key}"), None).await;
    assert_eq!(answer.status, 200, "{answer}");
    answer.json()
}

#[apply(fact)]
async fn a_lead_raises_a_reached_limit_of_a_key_from_its_page() {
    let Led { stack, mut lead, own, .. } = led().await;
    let tight = json!({"label": "tight", "group_id": own, "limit": number(requests(1))});
    let key = stack.key_with(tight).await;
    assert_eq!(send(&stack, &key).await.status, 200);
    let path = format!("/dashboard/keys/{}", key.id);
    let page = lead.get(&path).await;
    let link = format!("<a href=\"{path}/settings?raise=never\">Raise for today</a>");
    assert!(page.text().contains(&link), "{page}");
    assert_eq!(lead.get(&format!("{path}/settings?raise=never")).await.status, 200);
}

#[apply(fact)]
async fn a_lead_makes_changes_rotates_and_revokes_the_keys_of_one_group() {
    let Led { stack, mut lead, own, child, inside, below, mut owner, .. } = led().await;
    assert_eq!(lead.get("/dashboard").await.header("location"), format!("/dashboard/groups/{own}"));
    let page = lead.get(&format!("/dashboard/groups/{own}")).await;
    assert!(page.text().contains("team-key") && page.text().contains("Interns"), "{page}");
    assert!(!page.text().contains("class=\"balance\"") && page.text().contains(">lead</span>"), "{page}");
    let keys = lead.get("/dashboard/keys").await;
    assert!(keys.text().contains("team-key") && keys.text().contains("intern-key"), "{keys}");
    let requests = lead.get("/dashboard/activity").await;
    assert!(requests.text().contains("team-key") && requests.text().contains("3 requests"), "{requests}");

    let form = lead.get("/dashboard/keys/new").await;
    let fields = [("label", "of the lead"), ("limit", "3"), ("attempt", &attempt(&form))];
    let made = lead.post("/dashboard/keys", &fields).await;
    assert!(new_key(&made).starts_with("fg_api_"), "{made}");
    let made = attribute(&made, "data-done href=\"/dashboard/keys/").unwrap();
    assert_eq!(shown(&stack, &made).await["group_id"], own, "a key without a group comes into the lead's");
    let path = format!("/dashboard/keys/{made}");
    for (fields, field, value) in [
        ([("label", "renamed"), ("limit", "2")], "limit", json!(2)),
        ([("group_id", child.as_str()), ("limit", "2")], "group_id", json!(child)),
    ] {
        assert_eq!(lead.post(&path, &fields).await.status, 303, "{fields:?}");
        assert_eq!(shown(&stack, &made).await[field], value);
    }
    let form = lead.get(&format!("{path}/rotate")).await;
    let fields = [("grace_seconds", "0"), ("attempt", &attempt(&form))];
    let rotated = lead.post(&format!("{path}/rotate"), &fields).await;
    assert!(new_key(&rotated).starts_with("fg_api_"));
    assert_eq!(lead.post(&format!("{path}/revoke"), &[]).await.status, 303);
    assert_eq!(shown(&stack, &made).await["status"], "revoked");
    let many = [("deed", "revoke"), ("key", below.id.as_str())];
    assert!(lead.post("/dashboard/keys/many", &many).await.text().contains("Revoke 1 API key?"));
    assert_eq!(lead.post("/dashboard/keys/many/apply", &many).await.status, 303);
    assert_eq!(shown(&stack, &below.id).await["status"], "revoked");
    assert_eq!(lead.post(&format!("/dashboard/groups/{own}/revoke-keys"), &[]).await.status, 303);
    assert_eq!(shown(&stack, &inside.id).await["status"], "revoked");

    let events = lead.get("/dashboard/events").await;
    let (_, list) = events.text().split_once("<main").unwrap();
    assert!(list.contains("key.rotated") && list.contains("lena"), "{list}");
    assert!(!list.contains("class=\"badge\">member.invited"), "{list}");
    let events = owner.get("/dashboard/events").await;
    assert!(events.text().contains("<bdi>lena</bdi>, lead of "), "{events}");
    let members = owner.get("/dashboard/members").await;
    assert!(members.text().contains("lead of <bdi>Team</bdi>"), "{members}");
}

/// Returns pages about the account, and about keys, groups and requests that a lead may not reach.
async fn closed_pages(led: &mut Led) -> Vec<(String, u16)> {
    let Led { other, another, outside, owner, .. } = led;
    let requests = owner.get(&format!("/dashboard/activity?key={}", outside.id)).await;
    let generation = attribute(&requests, "href=\"/dashboard/activity/gen_").unwrap();
    let members = owner.get("/dashboard/members").await;
    let member = attribute(&members, "href=\"/dashboard/members/").unwrap();
    let management_keys = owner.get("/dashboard/management-keys").await;
    let management_key = attribute(&management_keys, "class=\"button danger\" href=\"").unwrap();
    let month = "credit/2026-11";
    let whole = [
        "credit",
        "credit.csv",
        month,
        "members",
        "management-keys",
        "webhooks",
        "alerts",
        "margin",
        "margin?by=user",
        "margin.csv",
        "margin.csv?by=group",
        "groups/new",
    ];
    let mut closed: Vec<_> = whole.map(|page| (format!("/dashboard/{page}"), 403)).into();
    closed.extend([(format!("/dashboard/members/{member}"), 403), (management_key, 403)]);
    closed.push((format!("/dashboard/members/{member}/role"), 403));
    closed.push((format!("/dashboard/activity/gen_{generation}"), 404));
    closed.push((format!("/dashboard/keys/new?like={}", outside.id), 404));
    for part in ["", "/requests", "/settings", "/use", "/revoke"] {
        closed.push((format!("/dashboard/keys/{}{part}", outside.id), 404));
    }
    for group in [other, another] {
        for part in ["", "/requests", "/settings", "/use", "/revoke-keys"] {
            closed.push((format!("/dashboard/groups/{group}{part}"), 404));
        }
        closed.push((format!("/dashboard/groups/{group}/archive"), 403));
    }
    closed
}

/// Returns addresses that answer whatever a lead puts into them.
fn open_pages(Led { own, other, another, inside, outside, gone, .. }: &Led) -> Vec<String> {
    let lists = ["keys", "groups", "activity", "activity.csv", "activity.jsonl", "spend.csv", "events"];
    let mut open: Vec<String> = lists.iter().map(|list| format!("/dashboard/{list}")).collect();
    for key in [&outside.id, &gone.id] {
        for list in ["activity", "activity.csv", "activity.jsonl", "spend.csv", "events"] {
            open.push(format!("/dashboard/{list}?key={key}"));
        }
        for order in ["", "asc", "spent", "used"] {
            open.push(format!("/dashboard/keys?order={order}&after=0-{key}"));
        }
    }
    for group in [other, another] {
        for list in ["keys", "activity", "activity.csv", "activity.jsonl", "spend", "spend.csv", "events"] {
            open.push(format!("/dashboard/{list}?group={group}"));
        }
        for query in ["by=key", "by=group", "by=user", "range=today", "range=today&by=key"] {
            open.push(format!("/dashboard/spend.csv?group={group}&{query}"));
            open.push(format!("/dashboard/spend?group={group}&{query}"));
        }
        open.push(format!("/dashboard/groups?parent={group}"));
    }
    for query in
        ["q=secret", "q=secret&status=active", "q=moved", "status=trouble", "order=used", "order=spent"]
    {
        open.push(format!("/dashboard/keys?{query}"));
    }
    for query in ["groups?q=secret", "groups?q=division", "find?q=secret", "find?q=division", "find?q=owner"]
    {
        open.push(format!("/dashboard/{query}"));
    }
    for query in [
        "activity?after=0-99999",
        "activity?outcome=refused",
        "activity?key=secret",
        "events?after=0-99999",
        "spend",
        "spend?by=user",
        "spend?by=key&range=today",
        "spend.csv?by=user",
        "spend.csv?by=group&range=today",
    ] {
        open.push(format!("/dashboard/{query}"));
    }
    for part in [
        "",
        "?by=key",
        "?by=group",
        "?by=user",
        "?by=key&range=today",
        "?range=month",
        "/requests",
        "/settings",
    ] {
        open.push(format!("/dashboard/groups/{own}{part}"));
        open.push(format!("/dashboard/keys/{}{part}", inside.id));
    }
    open
}

#[apply(fact)]
async fn a_lead_reads_nothing_of_other_groups_and_of_the_account() {
    let mut led = led().await;
    for (path, status) in closed_pages(&mut led).await {
        let answer = led.lead.get(&path).await;
        assert_eq!(answer.status, status, "{path}: {answer}");
        assert!(FOREIGN.iter().all(|text| !answer.text().contains(text)), "{path}: {answer}");
    }
    let deposited = "$10.00";
    for path in open_pages(&led) {
        let answer = led.lead.get(&path).await;
        assert!(matches!(answer.status, 200 | 404), "{path}: {answer}");
        // The page repeats the search text.
        let searched = path.contains("q=") || path.contains("key=secret");
        for text in FOREIGN.iter().copied().chain([deposited]) {
            assert!(searched || !answer.text().contains(text), "{path} says {text}: {answer}");
        }
        assert!(!answer.text().contains("href=\"/dashboard/members"), "{path}: {answer}");
    }
    // A bill from the time in the group stays with the group, but without the label of the key, which has left.
    let file = led.lead.get("/dashboard/activity.csv").await;
    assert_eq!(file.text().lines().count(), 1 + 3, "{file}");
    assert!(file.text().contains(&led.gone.id) && !file.text().contains(&led.outside.id), "{file}");
    assert!(!file.text().contains("moved-away"), "{file}");
    let file = led.lead.get(&format!("/dashboard/activity.csv?key={}", led.outside.id)).await;
    assert_eq!(file.text().lines().count(), 1, "{file}");
    led.lead.get("/dashboard/keys").await;
    for secret in [led.outside.secret.clone(), led.stack.account.management_key.clone()] {
        for path in ["/dashboard/keys/search", "/dashboard/find"] {
            assert_eq!(led.lead.post(path, &[("q", &secret)]).await.header("location"), "/dashboard/keys");
            assert!(led.lead.get("/dashboard/keys").await.text().contains("No key of this account has"));
        }
    }
    let own = led.lead.post("/dashboard/find", &[("q", &led.inside.secret)]).await;
    assert_eq!(own.header("location"), format!("/dashboard/keys/{}", led.inside.id));
}

#[apply(fact)]
async fn a_lead_reads_no_amount_of_the_group_above() {
    let stack = Stack::start().await;
    let above = group(&stack, json!({"name": "School", "limit": 9_000})).await;
    let course = id(&group(&stack, json!({"name": "Course", "parent_id": above["id"], "limit": 400})).await);
    let key = stack.key_with(json!({"label": "Student", "group_id": course})).await;
    let invite = ["members", "invite", "--account", "default", "--name", "ann", "--role", "lead"];
    let mut lead = Browser::at(&stack.url(""));
    lead.sign_in(&stack.cli(&[&invite[..], &["--group", &course]].concat())).await;
    for path in [
        format!("/dashboard/groups/{course}"),
        format!("/dashboard/keys/{}", key.id),
        "/dashboard/groups".into(),
    ] {
        let page = lead.get(&path).await;
        assert!(page.text().contains("$400") && !page.text().contains("9,000"), "{path}: {page}");
        assert!(!page.text().contains("School"), "{path}: {page}");
    }
    assert_eq!(lead.get(&format!("/dashboard/groups/{}", id(&above))).await.status, 404);
}

#[apply(fact)]
async fn a_lead_changes_nothing_of_other_groups_and_not_its_own_bounds() {
    let Led { stack, mut lead, own, other, another, inside, outside, .. } = led().await;
    let form = attempt(&lead.get("/dashboard/keys/new").await);
    let key = |id: &str, act: &str| format!("/dashboard/keys/{id}{act}");
    let of_group = |id: &str, act: &str| format!("/dashboard/groups/{id}{act}");
    let before = [shown(&stack, &outside.id).await, shown(&stack, &inside.id).await];
    let forms: Vec<LeadForm<'_>> = vec![
        ("/dashboard/keys".into(), vec![("label", "x"), ("group_id", &other), ("attempt", &form)], 422),
        ("/dashboard/keys".into(), vec![("label", "x"), ("group_id", &another), ("attempt", &form)], 422),
        (key(&inside.id, ""), vec![("group_id", &other)], 422),
        (key(&inside.id, ""), vec![("group_id", "")], 422),
        (key(&outside.id, ""), vec![("group_id", &own)], 404),
        (key(&outside.id, ""), vec![("label", "mine")], 404),
        (key(&outside.id, "/rotate"), vec![("grace_seconds", "0"), ("attempt", &form)], 404),
        (key(&outside.id, "/revoke"), vec![], 404),
        (key("many", ""), vec![("deed", "revoke"), ("key", &outside.id)], 404),
        (key("many", "/apply"), vec![("deed", "revoke"), ("key", &inside.id), ("key", &outside.id)], 404),
        (key("many", "/apply"), vec![("deed", "move"), ("key", &inside.id), ("group_id", &other)], 422),
        (key("many", "/apply"), vec![("deed", "move"), ("key", &inside.id), ("group_id", "")], 422),
        (of_group(&own, ""), vec![("limit", "1000000"), ("resets", "")], 403),
        (of_group(&own, "/archive"), vec![], 403),
        (of_group(&other, "/revoke-keys"), vec![], 404),
        (of_group(&another, "/revoke-keys"), vec![], 404),
        ("/dashboard/groups".into(), vec![("name", "mine"), ("parent_id", &own)], 403),
        ("/dashboard/members".into(), vec![("name", "friend"), ("role", "owner")], 403),
        ("/dashboard/management-keys".into(), vec![("name", "mine"), ("group_id", &own)], 403),
        ("/dashboard/webhooks".into(), vec![("url", "https://example.com/hook")], 403),
        ("/dashboard/alerts".into(), vec![("rule", "refused"), ("channel", "webhook")], 403),
    ];
    for (path, fields, status) in forms {
        let answer = lead.post(&path, &fields).await;
        assert_eq!(answer.status, status, "{path} {fields:?}: {answer}");
    }
    assert_eq!([shown(&stack, &outside.id).await, shown(&stack, &inside.id).await], before);
}

#[apply(fact)]
async fn a_lead_whose_group_is_archived_sees_a_page_that_says_so_until_there_is_another_role() {
    let Led { stack, mut lead, mut owner, own, child, .. } = led().await;
    owner.get(&format!("/dashboard/groups/{own}/settings")).await;
    assert_eq!(owner.post(&format!("/dashboard/groups/{own}/archive"), &[]).await.status, 303);
    for path in ["/dashboard", "/dashboard/keys", "/dashboard/models", &format!("/dashboard/groups/{child}")]
    {
        let over = lead.get(path).await;
        assert!(over.status == 403 && over.text().contains("Your group is archived"), "{path}: {over}");
        assert!(!over.text().contains("team-key"), "{over}");
    }
    assert_eq!(lead.post("/dashboard/keys", &[("label", "x")]).await.status, 403);
    assert_eq!(lead.get("/dashboard/you").await.status, 200, "the member's own page stays");

    let members = owner.get("/dashboard/members").await;
    let member = members.text().rsplit("href=\"/dashboard/members/").next().unwrap();
    let path = format!("/dashboard/members/{}/role", member.split('"').next().unwrap());
    for (fields, field) in [
        ([("role", "lead"), ("group_id", "")], "group_id"),
        ([("role", "lead"), ("group_id", own.as_str())], "group_id"),
        ([("role", "owner"), ("group_id", own.as_str())], "role"),
        ([("role", "boss"), ("group_id", "")], "role"),
    ] {
        let refused = owner.post(&path, &fields).await;
        assert_eq!(refused.status, 422, "{fields:?}: {refused}");
        assert!(refused.text().contains(&format!("id=\"{field}-fault\"")), "{fields:?}: {refused}");
    }
    let other = id(&group(&stack, json!({"name": "Next team"})).await);
    assert_eq!(owner.post(&path, &[("role", "lead"), ("group_id", &other)]).await.status, 303);
    assert!(owner.get("/dashboard/members").await.text().contains("lena is now a lead."));
    let told = owner.get("/dashboard/events?type=member.role_changed").await;
    assert_eq!(told.text().matches("lead of <a ").count(), 2, "from one group to the other: {told}");
    assert!(told.text().contains("<bdi>Next team</bdi>"), "{told}");
    assert!(lead.get(&format!("/dashboard/groups/{other}")).await.text().contains("Next team"));
    assert_eq!(lead.get(&format!("/dashboard/groups/{own}")).await.status, 404);
}
