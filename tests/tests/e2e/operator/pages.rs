//! What the pages of operators show.

use serde_json::json;
use tests::{
    harness::{Deployment, Form, LOOK_EVERY, Options, PATIENCE, Stack, usd},
    upstream::Script,
};
use tokio::time::{Instant, sleep};

use super::{id_of, operator};

#[apply(fact)]
async fn accounts_are_listed_with_what_they_have_and_spend_and_found_by_name() {
    let stack = Stack::start().await;
    stack.open_account("Northwind", usd("5"));
    stack.cli(&["accounts", "create", "--name", "Empty"]);
    let key = stack.key_with(json!({"label": "one"})).await;
    assert_eq!(stack.call(&key, Script::tokens(10, 100)).send().await.status, 200);
    let mut ann = operator(&stack, "ann").await;
    let page = ann.get("/operator").await;
    for text in ["Northwind", "Empty", "default", "no credit", "not spent", "1–3 of 3"] {
        assert!(page.text().contains(text), "{text}: {page}");
    }
    for (order, first, direction) in [("credit", "Empty", "ascending"), ("spent", "default", "descending")] {
        let page = ann.get(&format!("/operator?order={order}")).await;
        let (_, row) = page.text().split_once("<tbody>").unwrap();
        let name = row.split("</bdi>").next().unwrap();
        assert!(name.ends_with(&format!(">{first}")), "{order}: {page}");
        assert!(page.text().contains(&format!("aria-sort=\"{direction}\"")), "{order}: {page}");
    }
    let found = ann.get("/operator?q=north").await;
    assert!(found.text().contains("Northwind") && !found.text().contains("Empty"), "{found}");
    assert!(ann.get("/operator?q=nobody").await.text().contains("No accounts match."));
    let account = ann.get(&format!("/operator/accounts/{}", id_of(&stack, "default"))).await;
    assert!(account.text().contains("<small>1 request</small>"), "{account}");
    for gone in ["/operator/accounts/acct_0", "/operator/accounts", "/operator/nothing"] {
        assert_eq!(ann.get(gone).await.status, 404, "{gone}");
    }
}

#[apply(fact)]
async fn upstreams_show_state_bills_and_times_of_first_tokens() {
    for deployment in [Deployment::AllInOne, Deployment::services(1, 1, Form::Alone)] {
        let is_apart = !matches!(deployment, Deployment::AllInOne);
        let stack = Stack::with(Options { deployment, ..Options::default() }).await;
        let key = stack.key_with(json!({"label": "one"})).await;
        for _ in 0..3 {
            let answer = stack.call(&key, Script::tokens(10, 20)).with("stream", true).send().await;
            assert_eq!(answer.status, 200, "{answer}");
        }
        let mut ann = operator(&stack, "ann").await;
        let deadline = Instant::now() + PATIENCE;
        let page = loop {
            let page = ann.get("/operator/upstreams").await;
            if page.text().contains("<td class=\"n\">3</td>") {
                break page;
            }
            assert!(Instant::now() < deadline, "{page}");
            sleep(LOOK_EVERY).await;
        };
        assert!(page.text().contains(" ms</td>") || page.text().contains(" s</td>"), "{page}");
        assert_eq!(page.text().contains("inference-gateway upstreams list"), is_apart, "{page}");
        assert_eq!(page.text().contains(" serving</span>"), !is_apart, "{page}");
        let installation = ann.get("/operator/installation").await;
        assert_eq!(installation.text().contains("captures to deliver"), !is_apart, "{installation}");
        assert!(installation.text().contains(env!("CARGO_PKG_VERSION")), "{installation}");
        assert!(installation.text().contains("<bdi>ann</bdi>"), "{installation}");
    }
}

#[apply(fact)]
async fn the_catalogue_shows_prices_costs_and_what_its_check_says() {
    let stack = Stack::start().await;
    let mut ann = operator(&stack, "ann").await;
    let page = ann.get("/operator/catalogue").await;
    for text in ["Model Flash", "Model Max", "catalogue check", "Margin"] {
        assert!(page.text().contains(text), "{text}: {page}");
    }
    assert!(page.body.len() < 60_000, "{} bytes", page.body.len());
}
