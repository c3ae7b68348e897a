//! Sums over a range of days for people who do not see the whole account: a lead, a viewer, and another account's
//! owner.

use http::Method;
use serde_json::json;
use tests::{
    harness::{Answer, ApiKey, Browser, Stack, usd},
    upstream::Script,
};

use super::{
    lead::{Led, led},
    signed_in,
};
use crate::money::budgets::manage;

async fn call(stack: &Stack, key: &ApiKey, user: &str) {
    let answer = stack.call(key, Script::tokens(12, 5)).with("user", user).send().await;
    assert_eq!(answer.status, 200, "{answer}");
}

/// Moves a group below another one.
async fn set_parent(stack: &Stack, group: &str, parent: &str) {
    let body = json!({"parent_id": parent});
    let moved = manage(stack, Method::PATCH, &format!("/groups/{group}"), Some(body)).await;
    assert_eq!(moved.status, 200, "{moved}");
}

/// Returns the number of requests in a file of sums.
async fn requests(browser: &mut Browser, query: &str) -> u64 {
    let file = browser.get(&format!("/dashboard/spend.csv?{query}")).await;
    assert_eq!(file.status, 200, "{query}: {file}");
    // The columns after the name contain no commas.
    let of_line = |line: &str| line.rsplit(',').nth(4).unwrap().parse::<u64>().unwrap();
    file.text().lines().skip(1).map(of_line).sum()
}

/// Returns whether there are sums above a list of requests.
fn has_sums(page: &Answer) -> bool {
    page.text().contains(" request · ") || page.text().contains(" requests · ")
}

#[apply(fact)]
async fn a_lead_reads_sums_of_the_time_in_the_group_and_none_of_users() {
    let Led { stack, mut lead, mut owner, own, child, other, another, inside, below, outside, gone } =
        led().await;
    // These bills for a key and a child group are from before or after their time in the lead's group.
    call(&stack, &gone, "team-user").await;
    set_parent(&stack, &child, &another).await;
    call(&stack, &below, "secret-user").await;
    call(&stack, &below, "secret-user").await;
    set_parent(&stack, &child, &own).await;
    for (scope, by_lead, by_owner) in [
        (String::new(), 3, 7),
        (format!("group={own}&"), 3, 3),
        (format!("group={child}&"), 1, 3),
        (format!("group={other}&"), 0, 2),
        (format!("group={another}&"), 0, 2),
        (format!("key={}&", inside.id), 1, 1),
        (format!("key={}&", below.id), 1, 3),
        (format!("key={}&", gone.id), 1, 2),
        (format!("key={}&", outside.id), 0, 1),
    ] {
        // For a range of one day, sums are by hour.
        for range in ["range=today", "range=30"] {
            for by in ["", "&by=key", "&by=group", "&by=user"] {
                let query = format!("{scope}{range}{by}");
                assert_eq!(requests(&mut lead, &query).await, by_lead, "{query}");
                assert_eq!(requests(&mut owner, &query).await, by_owner, "{query}");
            }
        }
    }
    for (query, is_summed) in [
        ("", true),
        ("?model=Model+Flash", true),
        ("?user=team-user", false),
        ("?user=secret-user", false),
        ("?user=nobody", false),
    ] {
        let page = lead.get(&format!("/dashboard/activity{query}")).await;
        assert_eq!(has_sums(&page), is_summed, "{query}: {page}");
        assert!(page.status == 200 && !page.text().contains(&outside.id), "{query}: {page}");
    }
    assert!(owner.get("/dashboard/activity?user=secret-user").await.text().contains("3 requests · "));
    for (path, sums) in [
        (format!("/dashboard/activity?group={child}"), "1 request · "),
        ("/dashboard/activity".into(), "3 requests · "),
    ] {
        let page = lead.get(&path).await;
        assert!(page.text().contains(sums), "{path}: {page}");
    }
}

#[apply(fact)]
async fn a_viewer_reads_no_margin_and_another_account_reads_no_sum() {
    let Led { stack, own, child, inside, below, .. } = led().await;
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    assert_eq!(requests(&mut viewer, "by=user").await, 4);
    for path in ["/dashboard/margin", "/dashboard/margin.csv", "/dashboard/margin.csv?by=key"] {
        assert_eq!(viewer.get(path).await.status, 403, "{path}");
    }
    let theirs = stack.open_account("theirs", usd("5"));
    let mut stranger = signed_in(&stack, &theirs, "owner").await;
    for scope in [
        String::new(),
        format!("group={own}&"),
        format!("group={child}&"),
        format!("key={}&", inside.id),
        format!("key={}&", below.id),
    ] {
        for query in ["", "by=key", "by=group", "by=user", "range=today", "range=today&by=group"] {
            assert_eq!(requests(&mut stranger, &format!("{scope}{query}")).await, 0, "{scope}{query}");
        }
        let page = stranger.get(&format!("/dashboard/activity?{scope}")).await;
        assert!(!page.text().contains("/activity/gen_"), "{scope}: {page}");
        assert!(!page.text().contains("1 request · ") && !page.text().contains("4 requests · "), "{page}");
    }
    for path in ["/dashboard?by=user", "/dashboard/activity?user=team-user", "/dashboard/margin.csv"] {
        let page = stranger.get(path).await;
        assert!(page.status == 200 && !page.text().contains("secret-user"), "{path}: {page}");
        assert!(
            !page.text().contains("Model Flash</th>") && !page.text().contains("/gen_"),
            "{path}: {page}"
        );
    }
}

#[apply(fact)]
async fn every_key_of_a_range_is_in_its_list_the_largest_first() {
    const KEYS: usize = 12;
    let stack = Stack::start().await;
    for n in 0..KEYS {
        let key = stack.key_with(json!({"label": format!("agent-{n:02}")})).await;
        for _ in 0..=n {
            call(&stack, &key, "ann").await;
        }
    }
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    let labels = |page: &Answer, name: &str| {
        let (_, table) = page.text().split_once(&format!("aria-label=\"{name}\"")).unwrap();
        let (table, _) = table.split_once("</table>").unwrap();
        let of = |rest: &str| rest.chars().take(2).collect::<String>();
        table.split(">agent-").skip(1).map(of).collect::<Vec<_>>()
    };
    let ranked: Vec<String> = (0..KEYS).rev().map(|n| format!("{n:02}")).collect();
    for range in ["today", "30"] {
        let page = viewer.get(&format!("/dashboard?range={range}&by=key")).await;
        assert_eq!(labels(&page, "Top keys in this period"), ranked[..10], "{range}: {page}");
        let all = format!("href=\"/dashboard/spend?range={range}&amp;by=key\">");
        assert!(page.text().contains(&format!("{all}5 others</a>")), "{range}: {page}");
        assert!(page.text().contains(&format!("{all}All keys with spend</a>")), "{range}: {page}");
        let list = viewer.get(&format!("/dashboard/spend?range={range}&by=key")).await;
        assert_eq!(labels(&list, "Key"), ranked, "{range}: {list}");
        // 12 of the 78 requests.
        assert!(list.text().contains("15.3 %") && list.text().contains(">new<"), "{range}: {list}");
    }
    let list = viewer.get("/dashboard/spend?range=last-month&by=key").await;
    assert!(list.text().contains("No requests were billed in this period."), "{list}");
    let list = viewer.get("/dashboard/spend?by=user").await;
    assert!(list.text().contains("ann</bdi>") && list.text().contains("100.0 %"), "{list}");
}
