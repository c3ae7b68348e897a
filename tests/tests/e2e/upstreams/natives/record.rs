//! `audit --against` with a vendor's own record of what it served.

use shared::clock::{Clock, System};
use tests::upstream::{Fault, Generation};

use super::*;

/// Returns the upstream's record, as a vendor exports it once all requests have ended: for each request, how it ended
/// and the tokens that the vendor counted.
pub(crate) fn record(stack: &Stack) -> Vec<Value> {
    stack.upstream.generations().iter().map(line).collect()
}

fn line(generation: &Generation) -> Value {
    let (_, ended) = generation.ended.unwrap();
    let served = generation.served;
    json!({
        "id": "req_of_the_vendor",
        "time": System.now().minus(ended.elapsed()),
        "prompt_tokens": served.prompt,
        "completion_tokens": served.completion,
    })
}

/// Returns the comparison of the journal with these lines.
pub(crate) fn compared(stack: &Stack, lines: &[Value]) -> Value {
    let file = stack.data().join("record.jsonl");
    let lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
    std::fs::write(&file, lines.join("\n")).unwrap();
    let words = ["audit", "--json", "--against", &file.display().to_string()];
    let (status, printed, error) = stack.operator().try_cli(&words);
    let compared: Value = serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{e}: {printed}{error}"));
    assert_eq!(status.success(), compared["equal"] == true, "{printed}{error}");
    compared
}

/// Returns the kinds of the differences, in order.
fn kinds(compared: &Value) -> Vec<&str> {
    let differences = compared["differences"].as_array().unwrap();
    differences.iter().map(|difference| difference["kind"].as_str().unwrap()).collect()
}

/// Makes a whole call, a stream, and a stream whose client leaves in the middle, each with a different number of
/// tokens.
async fn served(stack: &Stack, key: &ApiKey, dialect: Dialect, prompt: u64) {
    let call = |at: u64| stack.call(key, Script::tokens(prompt + at, 20).pace(5)).speaking(dialect);
    assert_eq!(call(0).send().await.status, 200, "{dialect:?}");
    call(1).stream().await.rest().await.assert_done();
    let mut left = call(2).stream().await;
    left.read_tokens(3).await;
    let tag = left.tag.clone();
    drop(left);
    stack.upstream.wait_for(&tag, "end", |generation| generation.ended_by(End::Finished)).await;
}

#[apply(fact)]
async fn the_journal_agrees_with_the_vendors_record_and_a_wrong_line_is_found() {
    for native in Native::BOTH {
        let stack = native.stack().await;
        let key = stack.key().await;
        for (prompt, dialect) in (100..).step_by(10).zip(Dialect::ALL) {
            served(&stack, &key, dialect, prompt).await;
        }
        stack.released(PATIENCE).await;
        let lines = record(&stack);
        let equal = compared(&stack, &lines);
        assert_eq!((&equal["equal"], kinds(&equal).len()), (&json!(true), 0), "{native:?}: {equal}");
        assert_eq!(equal["served"], json!({"requests": 9, "prompt_tokens": 999, "completion_tokens": 180}));
        assert_eq!(equal["billed"], equal["served"], "{native:?}");

        let mut wrong = lines.clone();
        wrong[4]["completion_tokens"] = 21.into();
        let found = compared(&stack, &wrong);
        assert_eq!(kinds(&found), ["not_billed", "not_served"], "{native:?}: {found}");
        assert_eq!(found["differences"][0]["served"]["completion_tokens"], 21, "{native:?}: {found}");
        assert_eq!(found["differences"][1]["billed"]["completion_tokens"], 20, "{native:?}: {found}");
        let mut missing = lines.clone();
        missing.remove(4);
        assert_eq!(kinds(&compared(&stack, &missing)), ["not_served"], "{native:?}");
        let mut twice = lines;
        twice.push(twice[4].clone());
        assert_eq!(kinds(&compared(&stack, &twice)), ["not_billed"], "{native:?}");
    }
}

/// The Messages API reports the prompt in its first event, but the Responses API reports usage only in its last. There,
/// the prompt of a cut stream is estimated, and the comparison shows it.
#[apply(fact)]
async fn a_cut_stream_is_in_the_record_as_billed_where_the_vendor_told_the_prompt_and_is_found_where_not() {
    for native in Native::BOTH {
        let stack = native.stack().await;
        let key = stack.key().await;
        for (prompt, dialect) in (200..).zip(Dialect::ALL) {
            let script = Script::tokens(prompt, 9).fault(Fault::Cut { after: 4 });
            let call = stack.call(&key, script).speaking(dialect).costing(cost_of(1, 4), cost_of(2_000, 4));
            assert!(!call.stream().await.rest().await.done, "{dialect:?} at {native:?}");
        }
        stack.released(PATIENCE).await;
        let compared = compared(&stack, &record(&stack));
        match native {
            Native::Messages => assert_eq!(compared["equal"], true, "{compared}"),
            Native::Responses => {
                assert_eq!(kinds(&compared), [["not_billed"; 3], ["not_served"; 3]].concat(), "{compared}");
                for difference in &compared["differences"].as_array().unwrap()[3..] {
                    let billed = (&difference["estimated"], &difference["billed"]["completion_tokens"]);
                    assert_eq!(billed, (&json!(true), &json!(4)), "{compared}");
                }
            }
        }
    }
}
