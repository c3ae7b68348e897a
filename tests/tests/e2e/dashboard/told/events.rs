//! Events of a key and of a group, on their own pages.

use http::Method;
use serde_json::{Value, json};
use tests::harness::{Answer, Deployment, Form, Options, Stack, usd};

use crate::dashboard::signed_in;

/// Number of changes to a label. Together with the creation, this makes more events than a key's page shows.
const CHANGES: usize = 9;

/// Returns the number of events that a page shows.
fn events(page: &Answer) -> usize {
    page.text().matches("<tr title=\"evt_").count()
}

async fn the_pages_show_their_own_events(deployment: Deployment) {
    let stack = Stack::with(Options { deployment, ..Options::default() }).await;
    let group = stack.cli(&["groups", "create", "--account", &stack.account.name, "--name", "Agents"]);
    let inside = stack.key_with(json!({"label": "inside", "group_id": group.trim()})).await;
    let outside = stack.key_with(json!({"label": "outside"})).await;
    let patch = async |id: &str, body: Value| {
        let answer = stack.manage(Method::PATCH, &format!("/{id}"), Some(body)).await;
        assert_eq!(answer.status, 200, "{answer}");
    };
    for n in 1..=CHANGES {
        patch(&inside.id, json!({"label": format!("inside {n}")})).await;
        patch(&outside.id, json!({"label": format!("outside {n}")})).await;
    }
    assert_eq!(stack.manage(Method::DELETE, &format!("/{}", inside.id), None).await.status, 200);
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;

    let page = viewer.get(&format!("/dashboard/keys/{}", inside.id)).await;
    let label = |n: usize| format!("<bdi>inside {n}</bdi>");
    let change = format!("label: {} → {}", label(CHANGES - 1), label(CHANGES));
    assert!(page.text().contains("key.revoked") && page.text().contains(&change), "{page}");
    assert!(page.text().contains("management key <bdi>"), "{page}");
    assert!(!page.text().contains("key.created") && !page.text().contains("outside"), "{page}");
    assert_eq!(events(&page), 8, "{page}");
    let all = format!("/dashboard/events?key={}", inside.id);
    assert!(page.text().contains(&format!("href=\"{all}\">All events of this key</a>")), "{page}");
    let all = viewer.get(&all).await;
    assert!(all.text().contains(">key.created</span>") && !all.text().contains("outside"), "{all}");
    assert_eq!(events(&all), CHANGES + 2, "{all}");

    let page = viewer.get(&format!("/dashboard/groups/{}", group.trim())).await;
    assert!(page.text().contains(&change) && !page.text().contains("outside"), "{page}");
    let named = format!("<a href=\"/dashboard/keys/{}\"><bdi title=\"inside {CHANGES}\">", inside.id);
    assert!(page.text().contains(&named), "the key by its name: {page}");
    assert_eq!(events(&page), 8, "{page}");
    let all = format!("/dashboard/events?group={}", group.trim());
    assert!(page.text().contains(&format!("href=\"{all}\">All events of this group</a>")), "{page}");
    let all = viewer.get(&all).await;
    assert!(all.text().contains(">group.created</span>") && !all.text().contains("outside"), "{all}");
    assert_eq!(events(&all), CHANGES + 3, "{all}");

    patch(&outside.id, json!({"limits": [{"amount": 35, "per": "month"}], "group_id": group.trim()})).await;
    let page = viewer.get(&format!("/dashboard/events?key={}", outside.id)).await;
    for change in [
        "limits by window: <bdi>no limit</bdi> → <bdi>$35 a month</bdi>",
        "group: <bdi>no group</bdi> → <bdi>Agents</bdi>",
    ] {
        assert!(page.text().contains(change), "{change}: {page}");
    }
    for metadata in [json!({"team": "search", "cost": "a"}), json!({"team": "ops"})] {
        patch(&outside.id, json!({"metadata": metadata})).await;
    }
    let page = viewer.get(&format!("/dashboard/events?key={}", outside.id)).await;
    let change = "metadata team: <bdi>search</bdi> → <bdi>ops</bdi>";
    assert!(page.text().contains(change) && !page.text().contains("{&quot;"), "{page}");
    let other = stack.open_account("other", usd("1"));
    let mut stranger = signed_in(&stack, &other, "owner").await;
    for filter in [format!("key={}", inside.id), format!("group={}", group.trim())] {
        let page = stranger.get(&format!("/dashboard/events?{filter}")).await;
        assert!(page.text().contains("No events match.") && events(&page) == 0, "{page}");
    }
}

#[apply(fact)]
async fn the_pages_of_a_key_and_a_group_show_their_own_events() {
    the_pages_show_their_own_events(Deployment::AllInOne).await;
}

#[apply(fact)]
async fn the_pages_of_a_key_and_a_group_show_their_own_events_over_a_redis() {
    the_pages_show_their_own_events(Deployment::services(1, 1, Form::Alone)).await;
}
