//! Prompts and limits that other requests, or the model, leave little room for.

use serde_json::json;
use tests::{
    harness::{Dialect, PATIENCE, Stack, cost_of},
    upstream::Script,
};

use super::{Native, pairs};

#[apply(fact)]
async fn a_prompt_whose_bound_takes_much_of_what_is_left_is_counted_so_that_others_are_served() {
    for (native, dialect) in pairs() {
        let stack = native.stack().await;
        // Pays for the upper bound of one prompt and the output of one answer.
        let key = stack.key_limited(cost_of(45_000, 4_096)).await;
        let call = |script| {
            let mut call = stack.call(&key, script).with("max_tokens", 4_096);
            let long = json!({"role": "user", "content": "words ".repeat(6_000)});
            call.body["messages"].as_array_mut().unwrap().insert(0, long);
            call.speaking(dialect)
        };
        let mut first = call(Script::tokens(100, 200).pace(10)).stream().await;
        first.read_tokens(2).await;
        let second = call(Script::tokens(100, 20)).send().await;
        assert_eq!(second.status, 200, "{dialect:?} at {native:?}: {second}");
        first.rest().await.assert_done();
        assert_eq!(stack.upstream.token_counts(), 2, "{dialect:?} at {native:?}");
        stack.released(PATIENCE).await;
        assert_eq!(stack.used(&key).await, cost_of(200, 220), "{dialect:?} at {native:?}");
    }
}

#[apply(fact)]
async fn a_limit_above_the_models_own_is_lowered_and_told() {
    let stacks = [Native::Messages.stack().await, Native::Responses.stack().await, Stack::start().await];
    for stack in stacks {
        let key = stack.key().await;
        let call = |limit: u64| {
            stack.call(&key, Script::tokens(12, 5)).with("max_tokens", limit).speaking(Dialect::Messages)
        };
        let lowered = call(200_000).send().await;
        assert_eq!((lowered.status, lowered.header("x-max-tokens")), (200, "131072"), "{lowered}");
        let stream = call(200_000).stream().await;
        assert_eq!(stream.header("x-max-tokens"), "131072");
        stream.rest().await.assert_done();
        let kept = call(131_072).send().await;
        assert_eq!((kept.status, kept.header("x-max-tokens")), (200, ""), "{kept}");
    }
}
