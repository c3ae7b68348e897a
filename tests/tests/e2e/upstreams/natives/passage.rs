//! Bodies and answers that pass unchanged.

use super::*;
use tests::upstream::Generation;

/// Returns the upstream's record of a request: the body that it received, and its path and headers.
fn got(stack: &Stack, tag: &str) -> Generation {
    stack.upstream.tagged(tag).pop().unwrap()
}

#[apply(fact)]
async fn a_body_reaches_the_upstream_byte_for_byte_but_for_its_head() {
    let stack = Native::Messages.stack().await;
    stack.others_spend();
    let key = stack.key().await;
    let text = serde_json::to_string(&Script { tag: "as it came".into(), ..Script::tokens(12, 5) }.message())
        .unwrap();
    let rest = format!(
        r#""system" : [{{"type":"text","text":"x-anthropic-billing-header: cc_version=2;"}},{{"type":"text","text":"\u00c9t\u00e9 \/","cache_control":{{"type":"ephemeral","ttl":"1h"}}}}],
           "messages":[ {{"role":"user","content":[{{"type":"text","text":{text}}}]}} ],"thinking":{{"type":"adaptive","display":"omitted"}}"#
    );
    let body =
        format!(r#"{{"model":"Model Flash","max_tokens":50,{rest},"metadata":{{"user_id":"someone"}}}}"#);
    let answer = send_raw(&stack, &key, "/v1/messages?beta=true", body).await;
    assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 5)), "{answer}");
    let got = got(&stack, "as it came");
    let sent = String::from_utf8(got.body.to_vec()).unwrap();
    assert!(sent.ends_with(&format!(",{rest}}}")), "{sent}");
    let head: Value = got.json();
    assert_eq!((&head["model"], &head["max_tokens"]), (&json!("scripted/model-flash"), &json!(50)));
    let user = head["metadata"]["user_id"].as_str().unwrap();
    assert!(user.len() == 64 && user != "someone", "{user}");
    assert_eq!(got.path, "/v1/messages?beta=true");
}

#[apply(fact)]
async fn a_clients_query_changes_nothing_of_the_catalogues_own() {
    let catalogue = include_str!("own_query.toml");
    let stack = Stack::with(Options { models: Models::Text(catalogue), ..Options::default() }).await;
    stack.others_spend();
    let key = stack.key().await;
    let script = Script { tag: "with a query".into(), ..Script::tokens(12, 5) };
    let body = json!({"model": "Model Flash", "max_output_tokens": 50, "input": says(&script)});
    let path = "/v1/responses?api-version=1&beta=true&key=wrong&API%2Dversion=2";
    assert_eq!(send_raw(&stack, &key, path, body.to_string()).await.status, 200);
    assert_eq!(got(&stack, "with a query").path, "/v1/responses?api-version=preview&beta=true");
}

#[apply(fact)]
async fn versions_pass_with_a_body_and_are_the_gateways_with_one_that_it_writes() {
    let stack = Native::Messages.stack().await;
    let key = stack.key().await;
    for (dialect, version, betas) in
        [(Dialect::Messages, "2023-01-01", vec!["a-1,b-2", "c-3"]), (Dialect::Chat, "2023-06-01", Vec::new())]
    {
        let call = stack.call(&key, Script::tokens(12, 5)).speaking(dialect);
        let tag = call.tag.clone();
        let call = call.header("anthropic-version", "2023-01-01").header("anthropic-beta", "a-1,b-2,c-3");
        assert_eq!(call.send().await.status, 200);
        let got = got(&stack, &tag);
        assert_eq!(got.headers["anthropic-version"], version, "{dialect:?}");
        let sent = got.headers.get("anthropic-beta").map(|value| value.to_str().unwrap());
        assert_eq!(sent, (!betas.is_empty()).then_some("a-1,b-2,c-3"), "{dialect:?}");
        for session in ["x-claude-code-session-id", "session-id", "authorization"] {
            assert!(!got.headers.contains_key(session), "{dialect:?} {session}");
        }
    }
}

#[apply(fact)]
async fn an_answer_passes_with_the_vendors_ids_and_members_and_with_its_cost() {
    for native in Native::BOTH {
        let stack = native.stack().await;
        let key = stack.key().await;
        stack.others_spend();
        let script = || Script { unknown_events: true, ..Script::tokens(12, 5) };
        let call = stack.call(&key, script()).speaking(native.own());
        let answer = call.clone().send().await;
        assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 5)), "{native:?}: {answer}");
        let json = answer.json();
        let (id, generation) = (json["id"].as_str().unwrap(), answer.header("x-generation-id"));
        assert!(generation.starts_with("gen_") && !id.contains(&generation[4..]), "{native:?}: {answer}");
        assert!(
            !answer.text().contains("scripted/"),
            "the upstream's name for the model stays inside: {answer}"
        );
        assert!(answer.text().contains("scripted_member"), "{native:?}: {answer}");

        let mut body = call.body.clone();
        body["stream"] = true.into();
        if native == Native::Responses {
            let messages = body["messages"].take();
            body.as_object_mut().unwrap().remove("messages");
            body["input"] = messages;
        } else {
            body["max_tokens"] = 100.into();
        }
        let streamed = send_raw(&stack, &key, native.path(), body.to_string()).await;
        let text = streamed.text();
        assert!(text.contains("scripted_member") && !text.contains("scripted/"), "{native:?}: {text}");
        let last = text.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap();
        let last: Value = serde_json::from_str(last).unwrap();
        match native {
            Native::Responses => {
                assert_eq!(last["type"], "response.completed", "{text}");
                assert_eq!(last["response"]["model"], "Model Flash");
                assert!(last["response"]["usage"]["cost"].is_number(), "{text}");
            }
            Native::Messages => {
                assert_eq!(last["type"], "message_stop", "{text}");
                assert!(text.contains("\"cost\":"), "{text}");
            }
        }
        let named = text.lines().filter(|line| line.starts_with("event: ")).count();
        assert_eq!(named, text.matches("data: ").count(), "each event has its name: {text}");
    }
}

#[apply(fact)]
async fn tools_that_the_vendor_runs_are_left_out_and_members_that_cost_more_too() {
    for (native, hosted, dearer) in [
        (Native::Responses, json!({"type": "web_search"}), json!("flex")),
        (
            Native::Messages,
            json!({"type": "web_search_20250305", "name": "web_search"}),
            json!("standard_only"),
        ),
    ] {
        let stack = native.stack().await;
        let key = stack.key().await;
        let tools = json!([hosted, function(native.own(), "lookup")]);
        let call = stack.call(&key, Script::tokens(12, 5)).speaking(native.own());
        let tag = call.tag.clone();
        let answer = call.with("tools", tools).with("service_tier", dearer).send().await;
        assert_eq!(answer.status, 200, "{native:?}: {answer}");
        assert_eq!(answer.header("x-dropped-tools"), hosted["type"].as_str().unwrap());
        assert_eq!(answer.header("x-dropped-members"), "service_tier");
        let sent = got(&stack, &tag).json();
        assert_eq!(sent["tools"], json!([function(native.own(), "lookup")]));
        assert!(sent.get("service_tier").is_none(), "{sent}");
    }
}

#[apply(fact)]
async fn accounts_share_no_cache_and_no_name_at_a_vendor() {
    let stack = Native::Responses.stack().await;
    let other = stack.open_account("other", tests::harness::usd("1"));
    let keys = [stack.key().await, stack.key_of(&other, json!({})).await];
    let mut names = Vec::new();
    for key in &keys {
        for (dialect, named) in [(Dialect::Responses, true), (Dialect::Chat, false)] {
            let mut call = stack.call(key, Script::tokens(12, 5)).speaking(dialect);
            let tag = call.tag.clone();
            if named {
                call = call.with("prompt_cache_key", "agent-1").with("user", "someone");
            }
            assert_eq!(call.send().await.status, 200);
            let sent = got(&stack, &tag).json();
            assert_eq!(sent["store"], false);
            names.push(sent["prompt_cache_key"].as_str().unwrap().to_owned());
        }
    }
    let distinct: std::collections::HashSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), 4, "{names:?}");
}

#[apply(fact)]
async fn an_agent_finds_the_models_and_the_gateway() {
    let stack = Native::Messages.stack().await;
    let key = stack.key().await;
    let head = Request::head(stack.url("/")).body(http_body_util::Full::default()).unwrap();
    assert_eq!(stack.http.send(head).await.status, 200);
    let ask = |path: &str, version: bool| {
        let mut request = Request::get(stack.url(path)).header("x-api-key", &key.secret);
        if version {
            request = request.header("anthropic-version", "2023-06-01");
        }
        let (http, request) = (stack.http.clone(), request.body(http_body_util::Full::default()).unwrap());
        async move { http.send(request).await.json() }
    };
    let listed = ask("/v1/models?limit=1000", true).await;
    assert_eq!(
        (&listed["data"][0]["id"], &listed["data"][0]["display_name"]),
        (&json!("Model Flash"), &json!("Model Flash"))
    );
    let models = ask("/v1/models?client_version=0.169.0", false).await;
    let model = &models["models"][0];
    assert_eq!((&model["slug"], &model["context_window"]), (&json!("Model Flash"), &json!(1_048_576)));
    let efforts: Vec<_> = model["supported_reasoning_levels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|level| &level["effort"])
        .collect();
    assert_eq!(efforts, ["low", "high"]);
    assert_eq!(ask("/v1/models", false).await["data"][0]["efforts"], json!(["low", "high"]));
}

#[apply(fact)]
async fn a_silent_stream_that_passes_is_kept_alive() {
    let stack = Native::Messages.stack_with("left_mid_stream = \"stop\"").await;
    let key = stack.key().await;
    let call = stack.call(&key, Script::tokens(12, 9).fault(tests::upstream::Fault::Stall { after: 3 }));
    let call = call.speaking(Dialect::Messages).costing(cost_of(12, 3), cost_of(12, 3));
    let mut stream = call.stream().await;
    stream.read_tokens(3).await;
    let began = std::time::Instant::now();
    assert_eq!(stream.read_comment().await, "ping");
    assert!(began.elapsed() < std::time::Duration::from_secs(25));
}
