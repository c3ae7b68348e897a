//! The operators' pages at `/operator`, through the gateway's address as browsers reach them.

mod acts;
mod api;
mod attacks;
mod pages;
mod standing;

use serde_json::Value;
use tests::harness::{Answer, Browser, Stack};

use crate::dashboard::second_factor::enrol_at;

/// Every page that an operator sees, except pages about one account.
const PAGES: [&str; 6] = [
    "/operator",
    "/operator/keys",
    "/operator/accounts/new",
    "/operator/upstreams",
    "/operator/catalogue",
    "/operator/installation",
];
const SECOND_FACTOR: &str = "/operator/second-factor";

/// Opens an operator's sign-in link.
async fn open_link(browser: &mut Browser, link: &str) -> Answer {
    browser.get("/operator/sign-in").await;
    browser.post("/operator/sign-in", &[("link", link.trim())]).await
}

/// Opens an operator's sign-in link and confirms it, with a code if there is one.
async fn sign_in(browser: &mut Browser, link: &str, code: &str) -> Answer {
    let opened = open_link(browser, link).await;
    if opened.status != 200 {
        return opened;
    }
    browser.post("/operator/sign-in/use", &[("link", link.trim()), ("code", code)]).await
}

/// Returns a browser with a session of a new operator who has no second factor yet.
async fn newcomer(stack: &Stack, name: &str) -> Browser {
    let link = stack.cli(&["operators", "create", "--name", name]);
    let mut browser = Browser::at(&stack.url(""));
    let answer = sign_in(&mut browser, &link, "").await;
    assert_eq!((answer.status, answer.header("location")), (303, "/operator"), "{answer}");
    browser
}

/// Returns a browser in which a new operator with this name is signed in, with a second factor.
async fn operator(stack: &Stack, name: &str) -> Browser {
    let mut browser = newcomer(stack, name).await;
    enrol_at(SECOND_FACTOR, &mut browser, "").await;
    assert_eq!(browser.get("/operator").await.status, 200);
    browser
}

/// Returns the accounts as a command lists them.
fn accounts(stack: &Stack) -> Vec<Value> {
    serde_json::from_str(&stack.cli(&["accounts", "list", "--json"])).unwrap()
}

/// Returns the id of an account.
fn id_of(stack: &Stack, name: &str) -> String {
    let accounts = accounts(stack);
    let account = accounts.iter().find(|account| account["name"] == name).unwrap();
    account["id"].as_str().unwrap().to_owned()
}
