//! Raising a limit for the rest of the day, with two clicks from the line that reports the problem.

use std::time::Duration;

use http::Method;
use serde_json::json;
use shared::clock::{Clock, System};
use tests::harness::{Answer, Stack, attribute, nanos, until};

use crate::{
    dashboard::signed_in,
    money::budgets::{group, manage, number, requests, send},
};

/// Returns the values that the page filled into a limit's form.
fn filled(page: &Answer, raise: &str, until: &str) -> [String; 2] {
    [raise, until].map(|name| {
        let tag = page.text().split("<input").find(|tag| tag.contains(&format!("name=\"{name}\""))).unwrap();
        tag.split_once("value=\"").unwrap().1.split('"').next().unwrap().to_owned()
    })
}

#[apply(fact)]
async fn a_reached_limit_of_a_key_or_a_group_is_raised_for_today_from_the_first_page() {
    let stack = Stack::start().await;
    let key = stack.key_with(json!({"label": "alone", "limit": number(requests(1))})).await;
    let day = json!([{"amount": number(requests(1)), "per": "day"}]);
    let team = group(&stack, json!({"name": "Team", "limits": day})).await;
    let inside = stack.key_with(json!({"label": "inside", "group_id": team["id"]})).await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    let of_key = format!("/dashboard/keys/{}", key.id);
    let of_group = format!("/dashboard/groups/{}", team["id"].as_str().unwrap());
    for key in [&key, &inside] {
        assert_eq!(send(&stack, key).await.status, 200);
        assert_eq!(send(&stack, key).await.status, 402);
    }
    // Key-services collect refused calls and report several at a time.
    let is_counted = async || owner.get("/dashboard").await.text().contains("2 keys are out of budget");
    until("the refused call to be counted", is_counted).await;
    let cases = [
        (&key, &of_key, "never", format!("/keys/{}", key.id)),
        (&inside, &of_group, "day", format!("/groups/{}", team["id"].as_str().unwrap())),
    ];
    for (key, page, resets, object) in cases {
        let link = format!("{page}/settings?raise={resets}");
        let anchor = format!("<a href=\"{link}\">Raise for today</a>");
        for shown in ["/dashboard".to_owned(), page.clone()] {
            let seen = owner.get(&shown).await;
            assert!(seen.text().contains(&anchor), "{shown}: {seen}");
            assert!(!viewer.get(&shown).await.text().contains("Raise for today"), "{shown}");
        }
        let form = owner.get(&link).await;
        let [amount, until] = filled(&form, "raise", "until");
        assert_eq!(amount, requests(2).to_string());
        assert!(until.ends_with("T00:00"), "{until}");
        assert!(form.text().contains("<details open"), "the fields are seen: {form}");
        let shown = attribute(&form, "name=\"shown\" value=\"").unwrap().replace("&amp;", "&");
        let limit = requests(1).to_string();
        let per = if resets == "never" { "" } else { resets };
        let fields = |amount, until| {
            [("limit", &*limit), ("resets", per), ("raise", amount), ("until", until), ("shown", &*shown)]
        };
        let past = owner.post(page, &fields(&amount, "2001-01-01T00:00")).await;
        assert!(past.status == 422 && past.text().contains("id=\"until-fault\""), "{past}");
        let low = owner.post(page, &fields(&limit, &until)).await;
        assert!(low.status == 422 && low.text().contains("id=\"raise-fault\""), "{low}");
        let saved = owner.post(page, &fields(&amount, &until)).await;
        assert_eq!(saved.status, 303, "{saved}");
        let object = manage(&stack, Method::GET, &object, None).await.json();
        let raised = if per.is_empty() { &object["limit_raised"] } else { &object["limits"][0]["raised"] };
        assert_eq!(nanos(&raised["amount"]), requests(2));
        assert_eq!(send(&stack, key).await.status, 200, "it counts at once");
        let text = owner.get(page).await.text().to_owned();
        assert!(text.contains(" until <time") && text.contains("</time>, then $"), "{text}");
        assert!(text.contains("Saved. Limit") && text.contains(" UTC"), "{text}");
        // Submitting the form unchanged changes nothing.
        let form = owner.get(&format!("{page}/settings")).await;
        let [amount, until] = filled(&form, "raise", "until");
        let shown = attribute(&form, "name=\"shown\" value=\"").unwrap().replace("&amp;", "&");
        let fields = [
            ("limit", &*limit),
            ("resets", per),
            ("raise", &*amount),
            ("until", &*until),
            ("shown", &*shown),
        ];
        assert_eq!(owner.post(page, &fields).await.status, 303);
        assert!(owner.get(page).await.text().contains("Nothing was changed."));
    }
}

#[apply(fact)]
async fn a_copy_of_a_key_is_not_raised() {
    let stack = Stack::start().await;
    let raise = json!({"amount": 9, "until": "2999-12-31T00:00:00Z"});
    let far = json!({"limit": 5, "limit_raised": raise});
    let refused = stack.manage(Method::POST, "", Some(far)).await;
    refused.assert_error(400, "invalid_value");
    let until = System.now().plus(Duration::from_hours(24 * 30));
    let raise = json!({"amount": 9, "until": until.to_string()});
    let key = stack.key_with(json!({"label": "one", "limit": 5, "limit_raised": raise})).await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let form = owner.get(&format!("/dashboard/keys/new?like={}", key.id)).await;
    assert!(form.text().contains("value=\"one (copy)\"") && form.text().contains("value=\"5\""), "{form}");
    assert!(!form.text().contains("name=\"raise\"") && !form.text().contains("value=\"9\""), "{form}");
}
