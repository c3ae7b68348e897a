//! Bodies that the gateway passes to an upstream with the Responses or Messages API: members that no vendor documents,
//! names in a different case, and requests for work that no limit covers. Checks that only allowed members arrive at
//! the upstream.

use http::{Request, header};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::attack::row::Row;
use tests::{
    harness::{Answer, ApiKey, Models, Options, Stack, usd},
    upstream::Script,
};

/// Number of bodies with randomly named members, for each API.
const BODIES: u64 = 300;

#[derive(Clone, Copy, Debug)]
enum Api {
    Responses,
    Messages,
}

impl Api {
    async fn stack(self, lines: &'static str) -> Stack {
        let kind = match self {
            Self::Responses => "openai",
            Self::Messages => "anthropic",
        };
        Stack::with(Options { kind, models: Models::With(lines), ..Options::default() }).await
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }

    const fn lines(self) -> &'static str {
        match self {
            Self::Responses => "speaks = [\"responses\"]",
            Self::Messages => "",
        }
    }

    /// Returns the names of the members that every request has, and of those that the gateway itself adds.
    const fn usual(self) -> &'static [&'static str] {
        match self {
            Self::Responses => &["model", "max_output_tokens", "input", "store", "prompt_cache_key"],
            Self::Messages => &["model", "max_tokens", "messages"],
        }
    }

    fn body(self, script: &Script, members: &[(String, Value)]) -> String {
        let said = json!([{"role": "user", "content": script.message()}]);
        let mut body = match self {
            Self::Responses => json!({"model": "Model Flash", "max_output_tokens": 50, "input": said}),
            Self::Messages => json!({"model": "Model Flash", "max_tokens": 50, "messages": said}),
        };
        for (name, value) in members {
            body[name] = value.clone();
        }
        body.to_string()
    }
}

pub(crate) async fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for api in [Api::Responses, Api::Messages] {
        rows.push(random_members(api).await);
        rows.push(compaction(api).await);
    }
    rows.push(another_accounts_cache().await);
    rows
}

/// Names that servers know, some of them in another case, and names that no server knows.
const WORDS: [&str; 24] = [
    "model",
    "models",
    "max_output_tokens",
    "max_tokens",
    "store",
    "tools",
    "messages",
    "input",
    "provider",
    "plugins",
    "route",
    "cache_salt",
    "priority",
    "service_tier",
    "speed",
    "previous_response_id",
    "conversation",
    "container",
    "fallbacks",
    "kv_transfer_params",
    "mcp_servers",
    "n",
    "stream",
    "prompt_cache_key",
];

/// Draws one of the words at random. Changes the case of some letters, or replaces them with other letters with the
/// same case folding.
fn word(seed: &mut u64) -> String {
    let word = WORDS[draw(seed, WORDS.len() as u64)];
    let spelled = |letter: char, seed: &mut u64| match (draw(seed, 6), letter) {
        (0, letter) => letter.to_ascii_uppercase(),
        (1, 's') => '\u{17f}',
        (1, 'k') => '\u{212a}',
        (_, letter) => letter,
    };
    word.chars().map(|letter| spelled(letter, seed)).collect()
}

/// Draws a random number that is less than `below`.
fn draw(seed: &mut u64, below: u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    usize::try_from((*seed >> 33) % below).unwrap_or(0)
}

async fn random_members(api: Api) -> Row {
    let stack = api.stack(api.lines()).await;
    stack.others_spend();
    let key = stack.key().await;
    let (mut seed, mut arrived, mut strange) = (7, 0, Vec::new());
    for number in 0..BODIES {
        let members: Vec<(String, Value)> = (0..=draw(&mut seed, 3))
            .map(|_| word(&mut seed))
            // Members that every body has already are left out: a second value would only replace their own.
            .filter(|name| !api.usual().contains(&name.as_str()) && name != "stream")
            .map(|name| (name, json!("x")))
            .collect();
        let script = Script { tag: format!("passed {number}"), ..Script::tokens(12, 5) };
        send(&stack, &key, api, api.body(&script, &members)).await;
        for generation in stack.upstream.tagged(&script.tag) {
            arrived += 1;
            let body = generation.json();
            let names = body.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
            strange.extend(names.filter(|name| !api.usual().contains(name)).map(str::to_owned));
        }
    }
    Row {
        name: format!("{BODIES} bodies of {api:?} with members of random names"),
        expected: "none arrives".into(),
        seen: format!("{arrived} bodies arrive, with {strange:?}"),
        held: arrived > 0 && strange.is_empty(),
    }
}

async fn compaction(api: Api) -> Row {
    let stack = api.stack(api.lines()).await;
    stack.others_spend();
    let key = stack.key().await;
    let script = Script { tag: "compacts".into(), ..Script::tokens(12, 5) };
    let managed = match api {
        Api::Responses => json!([{"type": "compaction", "compact_threshold": 1}]),
        Api::Messages => {
            json!({"edits": [{"type": "compact_20260112"}, {"type": "clear_tool_uses_20250919"}]})
        }
    };
    send(&stack, &key, api, api.body(&script, &[("context_management".into(), managed)])).await;
    let arrived = stack.upstream.tagged(&script.tag);
    let compacts = arrived.iter().filter(|generation| {
        let managed = generation.json()["context_management"].to_string();
        managed.contains("compact")
    });
    let compacts = compacts.count();
    Row {
        name: format!("a request of {api:?} to compact the conversation"),
        expected: "arrives without that".into(),
        seen: format!("{} arrive, {compacts} to compact", arrived.len()),
        held: !arrived.is_empty() && compacts == 0,
    }
}

/// Runs an account that tries to hit prompts that another account has cached, although the accounts do not share a
/// cache.
async fn another_accounts_cache() -> Row {
    let stack = Api::Messages.stack("share_cache = false").await;
    stack.others_spend();
    let other = stack.open_account("other", usd("1"));
    let keys = [stack.key().await, stack.key_of(&other, json!({})).await];
    let secret = "A secret of the first account. ".repeat(300);
    let system = json!([{"type": "text", "text": secret, "cache_control": {"type": "ephemeral"}}]);
    let mut read = Vec::new();
    for key in [&keys[0], &keys[0], &keys[1]] {
        let script = Script { caches: true, prompt_tokens: None, ..Script::tokens(0, 5) };
        let body = Api::Messages.body(&script, &[("system".into(), system.clone())]);
        let answer = send(&stack, key, Api::Messages, body).await;
        read.push(answer.json()["usage"]["cache_read_input_tokens"].as_u64().unwrap_or(0));
    }
    Row {
        name: "tokens that an account reads from its own cache, and from another's".into(),
        expected: "some, and 0".into(),
        seen: format!("{}, and {}", read[1], read[2]),
        held: read[1] > 0 && read[2] == 0,
    }
}

async fn send(stack: &Stack, key: &ApiKey, api: Api, body: String) -> Answer {
    let request = Request::post(stack.url(api.path()))
        .header(header::AUTHORIZATION, format!("Bearer {}", key.secret))
        .header(header::CONTENT_TYPE, "application/json")
        .header("anthropic-version", "2023-06-01")
        .header("anthropic-beta", "context-management-2025-06-27")
        .body(Full::new(body.into()))
        .expect("it is a request");
    stack.http.send(request).await
}
