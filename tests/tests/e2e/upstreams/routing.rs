//! Several upstreams for one model: how one is chosen, and how a failed one is avoided and used again later.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::{
    harness::{ApiKey, Models, Options, PATIENCE, Stack, cost_of},
    upstream::{End, Fault, Script, Shape, Upstream},
};
use tokio::time::{sleep, timeout};

/// Pause between two requests while waiting for an upstream to be tried again.
const TRY_EVERY: Duration = Duration::from_millis(100);

/// Starts a stack with a second upstream, listed before its own upstream.
async fn two() -> (Stack, Upstream) {
    let second = Upstream::start();
    let models = Models::Also(second.url());
    (Stack::with(Options { models, ..Options::default() }).await, second)
}

/// Starts a stack with a second upstream listed before its own. Each has these lines in the catalogue.
async fn apart(scripted: &'static str, lines: &'static str) -> (Stack, Upstream) {
    let second = Upstream::start();
    let models = Models::Apart { scripted, other: second.url(), lines };
    (Stack::with(Options { models, ..Options::default() }).await, second)
}

/// Sends a request that leaves the script to the upstream.
async fn ask(stack: &Stack, key: &ApiKey) -> u16 {
    let mut call = stack.call(key, Script::default());
    call.body["messages"] = json!([{"role": "user", "content": "Hi"}]);
    call.send().await.status
}

#[apply(fact)]
async fn a_conversation_comes_back_to_the_upstream_that_has_read_it() {
    const CONVERSATIONS: usize = 12;
    const TURNS: usize = 4;
    let (stack, second) = two().await;
    let key = stack.key().await;
    let told = json!(Script { caches: true, ..Script::default() }.message());
    let mut conversations: Vec<Vec<Value>> = (0..CONVERSATIONS)
        .map(|n| {
            let system = format!("You are number {n}. ") + &"Be brief and precise. ".repeat(60);
            vec![json!({"role": "system", "content": system})]
        })
        .collect();
    let (mut prompt, mut cached) = (0, 0);
    for _ in 0..TURNS {
        for conversation in &mut conversations {
            conversation.push(json!({"role": "user", "content": told}));
            let mut call = stack.call(&key, Script::default());
            call.body["messages"] = conversation.clone().into();
            let answer = call.send().await.json();
            conversation.push(answer["choices"][0]["message"].clone());
            let usage = &answer["usage"];
            prompt += usage["prompt_tokens"].as_u64().unwrap();
            cached += usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        }
    }
    let served = [stack.upstream.generations().len(), second.generations().len()];
    assert!(
        served.iter().all(|served| served % TURNS == 0 && *served > 0),
        "no conversation is split: {served:?}"
    );
    // In three of four turns, everything except the new messages can be cached.
    assert!(cached * 100 >= prompt * 65, "{cached} of {prompt}");
}

#[apply(fact)]
async fn one_conversation_spills_over_rather_than_wait_for_its_upstream() {
    let (stack, second) = two().await;
    let key = stack.key().await;
    let long = json!({"role": "system", "content": "Be brief and precise. ".repeat(100)});
    let mut streams = Vec::new();
    for _ in 0..20 {
        let call = stack.call(&key, Script::tokens(12, 9).fault(Fault::Stall { after: 1 }));
        let mut call = call.costing(cost_of(12, 1), cost_of(12, 1));
        call.body["messages"].as_array_mut().unwrap().insert(0, long.clone());
        streams.push(call.stream().await);
    }
    let (one, other) = (stack.upstream.generations().len(), second.generations().len());
    // Maximum for one upstream: a quarter above the even share of ten, rounded up.
    assert!(one.max(other) <= 13 && one + other == 20, "{one} {other}");
    for stream in &mut streams {
        stream.read_tokens(1).await;
    }
    drop(streams);
    stack.released(PATIENCE).await;
}

#[apply(fact)]
async fn an_upstream_that_fails_is_left_alone_and_comes_back() {
    let (stack, second) = two().await;
    let key = stack.key().await;
    second.set_default(Script::default().fault(Fault::Error { status: 500, shape: Shape::Html }));
    for _ in 0..30 {
        assert_eq!(ask(&stack, &key).await, 200, "another one answers");
    }
    let failures = second.generations().len();
    assert!((3..=5).contains(&failures), "{failures} of 30 requests went to the one that fails");
    second.set_default(Script::default());
    let deadline = Instant::now() + PATIENCE;
    while second.generations().len() < failures + 5 {
        assert_eq!(ask(&stack, &key).await, 200);
        assert!(Instant::now() < deadline, "it does not come back");
        sleep(TRY_EVERY).await;
    }
}

#[apply(fact)]
async fn requests_that_two_upstreams_fail_at_alike_set_neither_aside() {
    let (stack, second) = two().await;
    let key = stack.key().await;
    let fails = Script::default().fault(Fault::Error { status: 500, shape: Shape::Nested });
    for _ in 0..8 {
        stack.call(&key, fails.clone()).send().await.assert_error(502, "upstream_error");
    }
    assert_eq!((stack.upstream.generations().len(), second.generations().len()), (8, 8), "each asked both");
    let metrics = stack.http.get(&format!("{}/metrics", stack.server().admin())).await;
    let told = |state: &str| {
        let series = format!("gateway_upstreams{{model=\"Model Flash\",state=\"{state}\"}} ");
        metrics.text().lines().find_map(|line| line.strip_prefix(&series)).map(str::to_owned)
    };
    assert_eq!(told("serving").as_deref(), Some("2"), "{metrics}");
    assert!(told("set_aside").is_none_or(|count| count == "0"), "{metrics}");
}

#[apply(fact)]
async fn the_only_upstream_is_asked_however_often_it_failed() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    stack.upstream.set_default(Script::default().fault(Fault::Error { status: 500, shape: Shape::Html }));
    for _ in 0..10 {
        assert_eq!(ask(&stack, &key).await, 502);
    }
    stack.upstream.set_default(Script::default());
    assert_eq!(ask(&stack, &key).await, 200);
    assert_eq!(stack.upstream.generations().len(), 11);
}

#[apply(fact)]
async fn a_request_that_is_refused_is_not_tried_elsewhere() {
    let (stack, second) = two().await;
    let key = stack.key().await;
    let script = Script::default().fault(Fault::Error { status: 400, shape: Shape::Nested });
    for _ in 0..5 {
        stack.call(&key, script.clone()).send().await.assert_error(400, "invalid_value");
    }
    assert_eq!(stack.upstream.generations().len() + second.generations().len(), 5);
}

#[apply(fact)]
async fn a_stream_that_is_left_before_its_head_costs_what_the_upstream_that_was_asked_says() {
    let (stack, second) = apart("left_before_head = \"prompt\"", "left_before_head = \"free\"").await;
    // Each prompt chooses one of the two at random, so this continues until both have been asked.
    let (mut asked_to_charge, mut asked_for_free) = (0, 0);
    while asked_to_charge == 0 || asked_for_free == 0 {
        assert!(asked_to_charge + asked_for_free < 40, "one upstream alone is asked");
        let key = stack.key().await;
        let call = stack.call(&key, Script::tokens(1_000, 9).fault(Fault::StallBeforeHead));
        let tag = call.tag.clone();
        let charges = |stack: &Stack| !stack.upstream.tagged(&tag).is_empty();
        assert!(
            timeout(Duration::from_millis(700), call.costing(cost_of(0, 0), cost_of(1_000, 0)).try_stream())
                .await
                .is_err()
        );
        let asked = if charges(&stack) { &stack.upstream } else { &second };
        asked.wait_for(&tag, "stop", |generation| generation.ended_by(End::ClientLeft)).await;
        stack.released(PATIENCE).await;
        let expected = if charges(&stack) { cost_of(1_000, 0) } else { cost_of(0, 0) };
        assert_eq!(stack.used(&key).await, expected);
        *(if charges(&stack) { &mut asked_to_charge } else { &mut asked_for_free }) += 1;
    }
    assert_eq!(stack.upstream.token_counts(), asked_to_charge, "counted once each, where it was read");
    assert_eq!(second.token_counts(), 0);
}

#[apply(fact)]
async fn an_image_goes_to_an_upstream_that_may_be_handed_its_url() {
    let (stack, second) = apart("image_urls = \"data\"", "image_urls = \"https\"").await;
    let key = stack.key().await;
    let ask = async |url: &str| {
        let mut call = stack.call(&key, Script::default());
        let text = call.body["messages"][0]["content"].take();
        let image = json!({"type": "image_url", "image_url": {"url": url}});
        call.body["messages"][0]["content"] = json!([{"type": "text", "text": text}, image]);
        call.send().await
    };
    for _ in 0..6 {
        assert_eq!(ask("https://images.example.com/a.png").await.status, 200);
    }
    assert_eq!((stack.upstream.generations().len(), second.generations().len()), (0, 6));
    for inside in [
        "https://127.0.0.1/a",
        "https://2130706433/a",
        "https://[::ffff:10.0.0.1]/a",
        "https://a@localhost./",
    ] {
        let answer = ask(inside).await;
        answer.assert_error(400, "invalid_value").assert_param(Some("messages[0].content[1].image_url.url"));
    }
    let mut asked = 0;
    while stack.upstream.generations().is_empty() {
        assert_eq!(ask("data:image/png;base64,QUJD").await.status, 200);
        asked += 1;
        // The choice between idle upstreams is random.
        assert!(asked < 100, "either may be handed data");
    }
}
