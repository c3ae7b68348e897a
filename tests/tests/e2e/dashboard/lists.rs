//! Lists in the dashboard, page by page.

use http::Method;
use serde_json::{Value, json};
use tests::{
    harness::{Answer, Browser, Stack, attribute, usd},
    upstream::Script,
};

use super::{pages::spend, replicas, signed_in};
use crate::money::budgets::group;

const HEAD: &str = "day,part,id,name,requests,tokens,charged,hour,zone\r\n";

#[apply(fact)]
async fn keys_are_found_page_by_page_by_label_and_status() {
    let stack = Stack::start().await;
    for number in 0..60 {
        stack.key_with(json!({"label": format!("Customer {number:02}")})).await;
    }
    let old = stack.key_with(json!({"label": "expired", "expires_at": "2020-01-01T00:00:00Z"})).await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let first = owner.get("/dashboard/keys").await;
    assert!(first.text().contains("Customer 59") && !first.text().contains("Customer 05"), "{first}");
    let second = owner.get(&attribute(&first, "rel=\"next\" href=\"").unwrap()).await;
    assert!(second.text().contains("Customer 05") && !second.text().contains("Customer 59"), "{second}");
    assert!(!second.text().contains("Next page"));
    let found = owner.get("/dashboard/keys?q=customer+07").await;
    assert!(found.text().contains("Customer 07") && !found.text().contains("Customer 08"), "{found}");
    let expired = owner.get("/dashboard/keys?status=expired").await;
    assert!(expired.text().contains(&old.id) && !expired.text().contains("Customer"), "{expired}");
    assert!(owner.get("/dashboard/keys?q=nothing").await.text().contains("No keys match"));
    let oldest = owner.get("/dashboard/keys?order=asc&status=active").await;
    assert!(oldest.text().contains("Customer 00") && !oldest.text().contains("Customer 59"), "{oldest}");
}

#[apply(fact)]
async fn lists_lead_forth_and_back_and_say_how_long_they_are() {
    // Once over SQLite, and once over Redis.
    for stack in [Stack::start().await, replicas().await] {
        let shared = group(&stack, json!({"name": "Group"})).await;
        let of_group = shared["id"].as_str().unwrap();
        let mut last = None;
        for number in 0..60 {
            let label = format!("Customer {number:02}");
            last = Some(stack.key_with(json!({"label": label, "group_id": of_group})).await);
        }
        stack.key_with(json!({"label": "Another"})).await;
        for number in 0..51 {
            group(&stack, json!({"name": format!("Group {number:02}")})).await;
            stack.add_credit(&stack.account, usd("1"), "Invoice");
        }
        for _ in 0..53 {
            spend(&stack, last.as_ref().unwrap()).await;
        }
        let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
        for (path, total) in [
            ("/dashboard/keys".to_owned(), Some(61)),
            (format!("/dashboard/keys?group={of_group}"), Some(60)),
            ("/dashboard/keys?status=active".into(), None),
            ("/dashboard/keys?q=customer&order=asc".into(), None),
            ("/dashboard/groups".into(), None),
            ("/dashboard/activity".into(), Some(53)),
            ("/dashboard/activity?outcome=captured".into(), None),
            ("/dashboard/credit".into(), Some(52)),
            ("/dashboard/events?type=key.created".into(), None),
        ] {
            let first = viewer.get(&path).await;
            let place = total.map_or("1–50<".to_owned(), |total| format!("1–50 of {total}<"));
            assert!(
                first.text().contains(&place) && !first.text().contains("rel=\"prev\""),
                "{path}: {first}"
            );
            assert_eq!(first.text().contains("Clear filters"), path.contains('?'), "{path}: {first}");
            let next = attribute(&first, "rel=\"next\" href=\"").unwrap().replace("&amp;", "&");
            let second = viewer.get(&next).await;
            let whole = second.text().split_once("<span>51–").unwrap().1.split('<').next().unwrap();
            let (shown, of) = whole.split_once(" of ").unwrap();
            assert!(shown == of && total.is_none_or(|total| of == total.to_string()), "{path}: {whole}");
            let back = attribute(&second, "rel=\"prev\" href=\"").unwrap().replace("&amp;", "&");
            assert_eq!(back, path);
        }
        let events = viewer.get("/dashboard/events").await;
        let (_, total) = events.text().split_once("1–50 of ").unwrap();
        assert!(total.split('<').next().unwrap().parse::<u32>().unwrap() > 160, "{events}");
    }
}

#[apply(fact)]
async fn a_range_of_days_goes_from_page_to_page_and_is_compared_and_kept_in_a_file() {
    // Once over SQLite, and once over Redis.
    for stack in [Stack::start().await, replicas().await] {
        let team = group(&stack, json!({"name": "Team A"})).await;
        let key = stack.key_with(json!({"label": "=Customer A", "group_id": team["id"]})).await;
        for user in [json!("ann"), json!(null)] {
            let answer = stack.call(&key, Script::tokens(100, 50)).with("user", user).send().await;
            assert_eq!(answer.status, 200, "{answer}");
        }
        let used = stack.used(&key).await;
        let mut owner = signed_in(&stack, &stack.account, "owner").await;
        let page = owner.get("/dashboard?range=today&by=group").await;
        for text in ["Nothing yesterday", "Team A", "href=\"/dashboard/activity?range=today\"", "By group"] {
            assert!(page.text().contains(text), "{text}: {page}");
        }
        let of_key = format!("/dashboard/keys/{}", key.id);
        for path in ["/dashboard", "/dashboard/margin", "/dashboard/activity", &of_key] {
            let now = owner.get(&format!("{path}?range=month")).await;
            let earlier = owner.get(&format!("{path}?range=last-month")).await;
            let has_spend = |page: &tests::harness::Answer| {
                let (_, main) = page.text().split_once("<main").unwrap();
                main.contains("/activity/gen_") || main.contains(">Model Flash<") || main.contains("figure")
            };
            assert!(
                has_spend(&now) && now.text().contains("aria-current=\"true\">This month</a>"),
                "{path}: {now}"
            );
            if path == "/dashboard/activity" {
                assert!(earlier.text().contains("Nothing was billed"), "{earlier}");
            }
            assert!(earlier.text().contains("\">Margin</a>") && earlier.text().contains("?range=last-month"));
        }
        let shown = stack.show(&key).await;
        let day = &shown["last_used_at"].as_str().unwrap()[..10];
        let bar = format!("href=\"/dashboard/activity?from={day}&amp;to={day}\"");
        assert_eq!(owner.get("/dashboard").await.text().matches(&bar).count(), 2, "a bar and a row");
        for (by, line) in [
            ("", format!("{day},model,\"Model Flash\",\"Model Flash\",2,300,{used},,UTC\r\n")),
            ("?by=key", format!("{day},key,{},\"'=Customer A\",2,300,{used},,UTC\r\n", key.id)),
            (
                "?by=group",
                format!("{day},group,{},\"Team A\",2,300,{used},,UTC\r\n", team["id"].as_str().unwrap()),
            ),
        ] {
            let file = owner.get(&format!("/dashboard/spend.csv{by}")).await;
            assert_eq!(file.text(), format!("{HEAD}{line}"), "{by}");
        }
        let of_team = format!("/dashboard/groups/{}", team["id"].as_str().unwrap());
        hours_and_users_add_up(&mut owner, &shown, &["/dashboard", &of_key, &of_team]).await;
        let margin = owner.get("/dashboard/margin.csv?by=group&range=today").await;
        assert!(margin.text().contains(&format!(",\"Team A\",2,300,{used},")), "{margin}");
        let file = owner.get("/dashboard/spend.csv?range=last-month").await;
        assert_eq!(file.text().lines().count(), 1, "{file}");
    }
}

/// Shows the one day that has two requests by hour. The first request's caller named a user.
async fn hours_and_users_add_up(owner: &mut Browser, key: &Value, pages: &[&str]) {
    let used_at = key["last_used_at"].as_str().unwrap();
    let (day, hour) = (&used_at[..10], used_at[11..13].parse::<u8>().unwrap());
    let sums = |file: &Answer| -> Vec<(u64, u64)> {
        let number = |cells: &[&str], place: usize| cells[place].parse().unwrap();
        let lines = file.text().lines().skip(1).map(|line| line.split(',').rev().collect::<Vec<_>>());
        lines.map(|cells| (number(&cells, 4), number(&cells, 3))).collect()
    };
    for by in ["", "&by=key", "&by=group"] {
        let file = owner.get(&format!("/dashboard/spend.csv?from={day}&to={day}{by}")).await;
        let all = sums(&file).into_iter().fold((0, 0), |all, of| (all.0 + of.0, all.1 + of.1));
        assert_eq!(all, (2, 300), "{by}: {file}");
        assert!(
            file.text().lines().skip(1).all(|line| !line.ends_with(",,UTC")),
            "each line has an hour: {file}"
        );
    }
    let users = owner.get("/dashboard/spend.csv?by=user&range=month").await;
    assert_eq!(sums(&users), [(1, 150), (1, 150)], "{users}");
    assert!(users.text().contains(",user,\"ann\",\"ann\",1,150,"), "{users}");
    for page in pages {
        let of_day = owner.get(&format!("{page}?from={day}&to={day}")).await;
        assert_eq!(of_day.text().matches(&format!("to={day}&amp;hour=")).count(), 48, "{page}: {of_day}");
        assert!(of_day.text().contains("Spend by hour"), "{page}: {of_day}");
    }
    for (hour, has_requests) in [(hour, true), ((hour + 12) % 24, false)] {
        let requests = owner.get(&format!("/dashboard/activity?from={day}&to={day}&hour={hour}")).await;
        assert_eq!(requests.text().contains("/dashboard/activity/gen_"), has_requests, "{hour}: {requests}");
    }
    let page = owner.get("/dashboard?by=user&range=month").await;
    assert!(page.text().contains("<bdi>ann</bdi>") && page.text().contains("No user"), "{page}");
    let requests = owner.get("/dashboard/activity?user=ann").await;
    assert!(requests.text().contains("1 request · "), "the sums of a user: {requests}");
}

#[apply(fact)]
async fn one_box_finds_keys_groups_members_generations_and_events_and_a_plaintext_stands_in_no_address() {
    let stack = replicas().await;
    let team = group(&stack, json!({"name": "Team A"})).await;
    let key = stack.key_with(json!({"label": "Customer A", "group_id": team["id"]})).await;
    stack.key_with(json!({"label": "Customer B"})).await;
    let generation = stack.call(&key, Script::tokens(100, 50)).send().await.json()["id"].clone();
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    let of_key = format!("/dashboard/keys/{}", key.id);
    let of_team = format!("/dashboard/groups/{}", team["id"].as_str().unwrap());
    let generation = generation.as_str().unwrap();
    for (text, page) in [
        (key.id.as_str(), of_key.clone()),
        ("customer a", of_key.clone()),
        (team["id"].as_str().unwrap(), of_team.clone()),
        ("TEAM a", of_team),
        (generation, format!("/dashboard/activity/{generation}")),
        (key.secret.as_str(), of_key),
    ] {
        viewer.get("/dashboard").await;
        let mut answer = viewer.post("/dashboard/find", &[("q", text)]).await;
        assert_eq!(answer.status, 303, "{text}: {answer}");
        while answer.status == 303 && answer.header("location") != page {
            let next = answer.header("location").to_owned();
            assert!(!next.contains(&key.secret), "{next}");
            answer = viewer.get(&next).await;
        }
        assert_eq!(answer.header("location"), page, "{text}: {answer}");
    }
    let several = viewer.get("/dashboard/find?q=customer").await;
    assert!(several.text().contains("Customer A") && several.text().contains("Customer B"), "{several}");
    let none = viewer.get("/dashboard/find?q=northwind").await;
    assert!(none.text().contains("No key, group, member, model or deposit has"), "{none}");
    let events = stack.url("/v1/management/events");
    let events = stack.http.send_as(&stack.account.management_key, Method::GET, &events, None).await.json();
    let event = events["data"][1]["id"].as_str().unwrap();
    let found = viewer.post("/dashboard/find", &[("q", event)]).await;
    let list = viewer.get(found.header("location")).await;
    assert!(list.status == 200 && list.text().contains(event), "{found}: {list}");
    let unknown = viewer.post("/dashboard/find", &[("q", "sk-proj-0123456789abcdefgh")]).await;
    assert_eq!(unknown.header("location"), "/dashboard/keys", "what may be a plaintext is not searched for");
}
