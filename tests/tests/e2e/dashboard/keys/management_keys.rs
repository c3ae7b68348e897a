//! Management keys: they are named, created, shown once, and revoked.

use http::Method;
use tests::harness::{Stack, attribute};

use crate::dashboard::signed_in;

const PATH: &str = "/dashboard/management-keys";

#[apply(fact)]
async fn a_management_key_is_named_created_shown_once_and_revoked() {
    let stack = Stack::start().await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let nameless = owner.post(PATH, &[("name", "  ")]).await;
    assert_eq!(nameless.status, 422, "{nameless}");
    let made = owner.post(PATH, &[("name", "Deployment")]).await;
    assert_eq!(made.status, 200, "{made}");
    let (_, rest) = made.text().split_once("aria-label=\"Your new key\" data-copy>").unwrap();
    let plaintext = rest.split('<').next().unwrap().to_owned();
    assert!(plaintext.starts_with("fg_mgmt_"), "{plaintext}");

    let list = async |secret: &str| {
        stack.http.send_as(secret, Method::GET, &stack.url("/v1/management/keys"), None).await
    };
    assert_eq!(list(&plaintext).await.status, 200);
    let page = owner.get(PATH).await;
    assert!(page.text().contains("Deployment") && !page.text().contains(&plaintext), "shown once");

    // The newest key comes first.
    let revoke = attribute(&page, "class=\"button danger\" href=\"").unwrap();
    let confirm = owner.get(&revoke).await;
    assert!(confirm.text().contains("Deployment"), "{confirm}");
    assert_eq!(list(&plaintext).await.status, 200, "looking revokes nothing");
    assert_eq!(owner.post(&revoke, &[]).await.status, 303);
    list(&plaintext).await.assert_error(401, "invalid_management_key");
}

#[apply(fact)]
async fn a_viewer_sees_management_keys_and_changes_none() {
    let stack = Stack::start().await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let revoke = attribute(&owner.get(PATH).await, "class=\"button danger\" href=\"").unwrap();
    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    let page = viewer.get(PATH).await;
    assert!(page.text().contains("first run") && !page.text().contains("Create management key"), "{page}");
    assert_eq!(viewer.post(PATH, &[("name", "mine")]).await.status, 403);
    assert_eq!(viewer.get(&revoke).await.status, 200);
    assert_eq!(viewer.post(&revoke, &[]).await.status, 403);
    assert!(!owner.get(PATH).await.text().contains("badge revoked"));
}

#[apply(fact)]
async fn another_accounts_management_key_is_out_of_reach() {
    let stack = Stack::start().await;
    let other = stack.open_account("other", tests::harness::usd("1"));
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let revoke = attribute(&owner.get(PATH).await, "class=\"button danger\" href=\"").unwrap();
    let mut stranger = signed_in(&stack, &other, "owner").await;
    assert!(!stranger.get(PATH).await.text().contains("first run"));
    assert_eq!(stranger.get(&revoke).await.status, 404);
    assert_eq!(stranger.post(&revoke, &[]).await.status, 404);
    assert!(!owner.get(PATH).await.text().contains("badge revoked"));
}

#[apply(fact)]
async fn a_form_that_is_sent_twice_makes_one_key() {
    let stack = crate::dashboard::replicas().await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let attempt = attribute(&owner.get(PATH).await, "name=\"attempt\" value=\"").unwrap();
    let fields = [("name", "Deployment"), ("attempt", attempt.as_str())];
    let made = owner.post(PATH, &fields).await;
    assert_eq!(made.status, 200, "{made}");
    for _ in 0..3 {
        assert_eq!(owner.post(PATH, &fields).await.status, 303);
    }
    let page = owner.get(PATH).await;
    assert_eq!(page.text().matches("<bdi>Deployment</bdi>").count(), 1, "{page}");
    assert_eq!(owner.post(PATH, &[("name", "x"), ("attempt", "made up")]).await.status, 403);
}

#[apply(fact)]
async fn a_management_key_gets_its_rights_in_the_form_and_shows_them_in_the_list() {
    let stack = Stack::start().await;
    let group = stack.cli(&["groups", "create", "--account", &stack.account.name, "--name", "Agents"]);
    let group = group.trim();
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let form = owner.get(PATH).await;
    assert!(form.text().contains(&format!("<option value=\"{group}\">Agents</option>")), "{form}");
    let unknown = "grp_00000000000070008000000000000000";
    for (name, value) in
        [("scope", "write"), ("group_id", "agents"), ("group_id", unknown), ("expires_at", "soon")]
    {
        let refused = owner.post(PATH, &[("name", "Report"), (name, value)]).await;
        assert_eq!(refused.status, 422, "{name}={value}: {refused}");
        assert!(refused.text().contains("role=\"alert\"") && refused.text().contains("Report"), "{refused}");
    }
    let fields =
        [("name", "Report"), ("scope", "read"), ("group_id", group), ("expires_at", "2999-01-01T00:00")];
    let made = owner.post(PATH, &fields).await;
    assert_eq!(made.status, 200, "{made}");
    let (_, rest) = made.text().split_once("aria-label=\"Your new key\" data-copy>").unwrap();
    let plaintext = rest.split('<').next().unwrap().to_owned();
    let url = stack.url("/v1/management/keys");
    let refused = stack.http.send_as(&plaintext, Method::POST, &url, Some(serde_json::json!({}))).await;
    refused.assert_error(403, "read_only_key");
    let page = owner.get(PATH).await;
    let shown = page.text().split("<tr").find(|row| row.contains("<bdi>Report</bdi>")).unwrap().to_owned();
    assert!(["read in ", "Agents", "2999-01-01 00:00"].iter().all(|text| shown.contains(text)), "{shown}");
}
