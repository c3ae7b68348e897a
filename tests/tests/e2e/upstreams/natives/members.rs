//! Members of a client's body that pass to any server, and members that only the vendor's own server receives.

use super::*;
use tests::upstream::Told;

/// Returns a request in the upstream's own API with this script and these members.
fn request(native: Native, script: &Script, members: &str) -> String {
    let messages = says(script);
    match native {
        Native::Responses => {
            format!(r#"{{"model":"Model Flash","max_output_tokens":50,{members}"input":{messages}}}"#)
        }
        Native::Messages => {
            format!(r#"{{"model":"Model Flash","max_tokens":50,{members}"messages":{messages}}}"#)
        }
    }
}

#[apply(fact)]
async fn members_that_no_vendor_documents_reach_no_other_server() {
    for native in Native::BOTH {
        let stack = native.stack().await;
        stack.others_spend();
        let key = stack.key().await;
        let script = Script { tag: "undocumented".into(), ..Script::tokens(12, 5) };
        let members = r#""models":["dear/pro"],"provider":{"only":["dear"]},"plugins":[{"id":"web"}],"cache_salt":"a","priority":-1,"kv_transfer_params":{},"#;
        let answer = send_raw(&stack, &key, native.path(), request(native, &script, members)).await;
        assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 5)), "{native:?}: {answer}");
        let dropped = answer.header("x-dropped-members");
        assert_eq!(dropped, "models, provider, plugins, cache_salt, priority, kv_transfer_params");
        let got = stack.upstream.tagged("undocumented").pop().unwrap().json();
        for name in dropped.split(", ") {
            assert!(got.get(name).is_none(), "{native:?} {name}: {got}");
        }
    }
}

#[apply(fact)]
async fn members_that_differ_in_case_or_nest_without_end_reach_no_server() {
    for native in Native::BOTH {
        let stack = native.stack().await;
        stack.others_spend();
        let key = stack.key().await;
        let deep = format!(r#""x":{}{},"#, "[".repeat(10_000), "]".repeat(10_000));
        let lookalikes =
            ["MODEL", "Store", "\u{17f}tream", "Tools", "Max_Output_To\u{212a}ens", "MAX_TOKENS", "Metadata"];
        let lookalikes = lookalikes.map(|name| format!(r#""{name}":null,"#));
        for (at, members) in lookalikes.into_iter().chain([deep]).enumerate() {
            let is_known = |members: &str| match native {
                Native::Responses => !members.contains("MAX_TOKENS"),
                Native::Messages => !members.contains("Max_Output") && !members.contains("Store"),
            };
            let script = Script { tag: format!("lookalike {at}"), ..Script::tokens(12, 5) };
            let answer = send_raw(&stack, &key, native.path(), request(native, &script, &members)).await;
            if is_known(&members) {
                assert_eq!(answer.status, 400, "{native:?}: {answer}");
                assert!(stack.upstream.tagged(&script.tag).is_empty());
            } else {
                assert_eq!(answer.status, 200, "{native:?}: {answer}");
            }
        }
    }
}

#[apply(fact)]
async fn a_request_to_compact_costs_no_more_than_its_hold() {
    for native in Native::BOTH {
        let stack = native.stack().await;
        stack.others_spend();
        let key = stack.key().await;
        let script = Script { tag: "compacts".into(), ..Script::tokens(12, 5) };
        let managed = match native {
            Native::Responses => r#""context_management":[{"type":"compaction","compact_threshold":1}],"#,
            Native::Messages => r#""context_management":{"edits":[{"type":"compact_20260112"}]},"#,
        };
        let answer = send_raw(&stack, &key, native.path(), request(native, &script, managed)).await;
        assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 5)), "{native:?}: {answer}");
        assert_eq!(answer.header("x-dropped-members"), "context_management");
        let got = stack.upstream.tagged("compacts").pop().unwrap().json();
        assert!(got.get("context_management").is_none(), "{got}");
    }
    let stack = Native::Messages.stack().await;
    let key = stack.key().await;
    let script = Script { tag: "summary".into(), ..Script::tokens(12, 5) };
    let body = request(Native::Messages, &script, r#""compaction":{"type":"summarize"},"#);
    let answer = send_raw(&stack, &key, "/v1/messages", body).await;
    assert_eq!(answer.status, 400, "{answer}");
    assert!(stack.upstream.tagged("summary").is_empty());
}

#[apply(fact)]
async fn accounts_that_share_no_cache_read_nothing_of_each_other() {
    let long = "A secret of the first account. ".repeat(300);
    for (lines, is_shared) in [("", true), ("share_cache = false", false)] {
        let stack = Native::Messages.stack_with(lines).await;
        let other = stack.open_account("other", tests::harness::usd("1"));
        let keys = [stack.key().await, stack.key_of(&other, json!({})).await];
        stack.others_spend();
        let mut read = Vec::new();
        for key in [&keys[0], &keys[0], &keys[1]] {
            let script = Script { caches: true, prompt_tokens: None, ..Script::tokens(0, 5) };
            let system = json!([{"type": "text", "text": long, "cache_control": {"type": "ephemeral"}}]);
            let tools = json!([{"name": "lookup", "input_schema": {"type": "object"}, "description": long,
                "cache_control": {"type": "ephemeral"}}]);
            let members = format!(r#""system":{system},"tools":{tools},"#);
            let answer =
                send_raw(&stack, key, "/v1/messages", request(Native::Messages, &script, &members)).await;
            assert_eq!(answer.status, 200, "{answer}");
            read.push(answer.json()["usage"]["cache_read_input_tokens"].as_u64().unwrap_or(0));
        }
        assert!(read[0] == 0 && read[1] > 200, "an account reads its own: {read:?}");
        assert_eq!(read[2] > 0, is_shared, "{lines}: {read:?}");
    }
}

#[apply(fact)]
async fn another_models_answer_is_billed_at_the_vendors_own_cost_where_that_is_higher() {
    let cost = tests::harness::usd("0.001");
    for (native, dialect) in pairs() {
        let stack = native.stack().await;
        let key = stack.key().await;
        for (answers_as, told, billed) in [
            (Some("dear/pro"), "0.001", cost),
            (Some("dear/pro"), "0.000000001", cost_of(12, 5)),
            (Some("model-flash-2026-02-01"), "0.001", cost_of(12, 5)),
            (None, "0.001", cost_of(12, 5)),
        ] {
            let last = format!(r#"{{"input_tokens":12,"output_tokens":5,"cost":{told}}}"#);
            let script = Script {
                answers_as: answers_as.map(str::to_owned),
                told: Told::json(&last),
                ..Script::tokens(12, 5)
            };
            let call = stack.call(&key, script).speaking(dialect).costing(billed, billed);
            let answer = call.send().await;
            assert_eq!(
                (answer.status, answer.cost()),
                (200, billed),
                "{native:?} {dialect:?} {answers_as:?}: {answer}"
            );
        }
    }
}
