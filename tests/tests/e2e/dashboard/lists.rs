//! Lists of the dashboard, page by page.

use serde_json::json;
use tests::harness::{Stack, attribute, usd};

use super::{pages::spend, replicas, signed_in};
use crate::budgets::group;

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
    // SQLite, and Redis.
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
            ("/dashboard/groups".into(), Some(52)),
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
