//! The test harness must detect the faults that it was built to catch.

use http::Method;
use tests::{harness::Stack, upstream::Script};

#[apply(fact)]
#[should_panic(expected = "its requests cost 0..=0 n$")]
async fn what_is_billed_and_in_no_book_fails_a_test() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let url = stack.url("/v1/chat/completions");
    let body = stack.call(&key, Script::tokens(12, 5)).body;
    assert_eq!(stack.http.send_as(&key.secret, Method::POST, &url, Some(body)).await.status, 200);
}

#[apply(fact)]
#[should_panic(expected = "held for good")]
async fn a_hold_that_stays_open_fails_a_test() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let mut stream = stack.call(&key, Script::tokens(12, 100_000).pace(20)).stream().await;
    stream.read_tokens(1).await;
    drop(stack);
    drop(stream);
}
