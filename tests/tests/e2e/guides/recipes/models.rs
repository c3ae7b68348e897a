//! The recipes in `docs/catalogue.md`. Each of them is a valid catalogue, and is served as printed.

use std::{collections::BTreeMap, fs};

use http::{Method, Uri};
use serde_json::{Value, json};
use shared_catalog::{Catalog, Model, Preset, Source, Upstream};
use tempfile::TempDir;
use tests::harness::{Answer, AskedOf, Given, Models, Options, Settings, Stack, StandIn, usd};

const PAGE: &str = include_str!("../../../../../docs/catalogue.md");
const SERVICE: &str = "[service]\nname = \"f\"\nprovider = \"f\"\ndocs = \"f\"\n";
/// Credential that every vendor accepts.
const KEY: &str = "sk-recipe-secret";
/// Text that every vendor answers.
const ANSWER: &str = "Yes, it is.";
/// The recipes, each with the preset for its vendor.
const PRESETS: [(&str, &str); 13] = [
    ("OpenAI", "openai"),
    ("Anthropic", "anthropic"),
    ("Azure OpenAI, v1 API", "azure"),
    ("Amazon Bedrock, OpenAI API", "bedrock"),
    ("OpenRouter", "openrouter"),
    ("DeepSeek", "deepseek"),
    ("Mistral", "mistral"),
    ("Groq", "groq"),
    ("xAI", "xai"),
    ("vLLM", "vllm"),
    ("SGLang", "sglang"),
    ("llama.cpp", "llama_cpp"),
    ("Ollama", "ollama"),
];

/// Returns the catalogue that each recipe contains, by the title of the recipe.
fn recipes() -> BTreeMap<&'static str, String> {
    let (_, recipes) = PAGE.split_once("\n## Recipes\n").unwrap();
    let sections = recipes.split("\n### ").skip(1).map(|section| {
        let (title, rest) = section.split_once('\n').unwrap();
        let block = rest.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
        (title, format!("{SERVICE}{block}"))
    });
    sections.collect()
}

fn model(title: &str, text: &str) -> Model {
    let catalog = Catalog::parse(text, title).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(catalog.models.len(), 1, "{title}");
    catalog.models.into_iter().next().unwrap()
}

/// Returns the settings of an upstream, except its address and its name. They include its headers, with the sources of
/// their values.
fn settings(upstream: &Upstream) -> impl PartialEq + std::fmt::Debug + use<> {
    let headers = upstream
        .access
        .headers
        .iter()
        .map(|header| format!("{}: {}{}", header.name, header.prefix, header.source));
    (
        headers.collect::<Vec<_>>(),
        (upstream.kind, upstream.speaks.clone(), upstream.limit_param, upstream.history),
        (upstream.left_before_head, upstream.left_mid_stream),
        upstream.url.clone(),
    )
}

#[test]
fn every_recipe_is_a_catalogue_without_a_fault_and_agrees_with_its_preset() {
    let recipes = recipes();
    let folder = TempDir::new().unwrap();
    let presets = Preset::all().unwrap();
    assert!(recipes.len() >= 15, "{:?}", recipes.keys());
    for (title, text) in &recipes {
        let file = folder.path().join("models.toml");
        fs::write(&file, text).unwrap();
        let printed = Settings::all_in_one(folder.path(), Vec::new()).cli(&[
            "--models",
            "models.toml",
            "catalogue",
            "check",
        ]);
        // Only for Ollama's recipe, a hint is printed about tokens that streams may hide.
        assert_eq!(printed.lines().count() == 1, *title != "Ollama", "{title}: {printed}");
        assert!(printed.ends_with("no fault (models: 1).\n"), "{title}: {printed}");
    }
    for (title, name) in PRESETS {
        let upstream = model(title, &recipes[title]).upstreams.remove(0);
        let preset = presets.iter().find(|preset| preset.name == name).unwrap();
        let fields = preset.upstream_fields().map(|(name, value)| format!("{name} = {value}\n"));
        let text = format!(
            "{SERVICE}[[model]]\nid = \"m\"\nowned_by = \"o\"\ncontext_window = 9\nmax_output_tokens = 9\n\
             price = {{ input = \"1\", cached_input = \"1\", output = \"1\" }}\n[[model.upstream]]\nmodel = \"m\"\n{}",
            fields.collect::<String>()
        );
        assert_eq!(settings(&upstream), settings(&model(name, &text).upstreams[0]), "{title}");
    }
}

/// Returns a minimal answer for each API.
fn answer(asked: &AskedOf) -> Given {
    let path = asked.path.split('?').next().unwrap();
    let body = match path.rsplit('/').next().unwrap() {
        "completions" => json!({
            "id": "c", "object": "chat.completion", "created": 1, "model": "x",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ANSWER}}],
            "usage": {"prompt_tokens": 13, "completion_tokens": 5, "total_tokens": 18},
        }),
        "responses" => json!({
            "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "x", "error": null,
            "incomplete_details": null, "instructions": null, "metadata": {}, "parallel_tool_calls": true,
            "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
            "output": [{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": ANSWER, "annotations": []}]}],
            "usage": {"input_tokens": 13, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5,
                "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 18},
        }),
        "messages" => json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "x",
            "content": [{"type": "text", "text": ANSWER}], "stop_reason": "end_turn", "stop_sequence": null,
            "usage": {"input_tokens": 13, "output_tokens": 5},
        }),
        _ => return (404, r#"{"detail":"Not Found"}"#.to_owned()),
    };
    (200, body.to_string())
}

/// Serves a recipe with a stand-in for its vendor. Returns the chat request that the stand-in received, and the answer.
async fn served(title: &str) -> (AskedOf, Answer) {
    let text = &recipes()[title];
    let recipe = model(title, text);
    let upstream = &recipe.upstreams[0];
    let stand_in = StandIn::start(answer).await;
    let folder = TempDir::new().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, format!("{KEY}\n")).unwrap();
    let url = upstream.url.as_ref().unwrap();
    let here = stand_in.url(url.path());
    let text = text
        .replace(&url.to_string(), &here)
        .replace("/run/secrets/vertex-token", &token.display().to_string());
    let variables = upstream.access.headers.iter().filter_map(|header| match &header.source {
        Source::Variable(name) => Some((&*name.clone().leak(), KEY.to_owned())),
        Source::Text(_) | Source::File(_) => None,
    });
    let options =
        Options { models: Models::Text(text.leak()), env: variables.collect(), ..Options::default() };
    let stack = Stack::with(options).await;
    stack.others_spend();
    let key = stack.key().await;
    let question = json!({
        "model": recipe.id, "max_tokens": 100, "messages": [{"role": "user", "content": "Is it?"}],
    });
    let chat = stack.url("/v1/chat/completions");
    let answer = stack.http.send_as(&key.secret, Method::POST, &chat, Some(question)).await;
    let asked = stand_in.asked().into_iter().find(|asked| asked.method == Method::POST);
    let asked = asked.unwrap_or_else(|| panic!("{title}: no request: {answer}"));
    let base: Uri = here.parse().unwrap();
    assert!(asked.path.starts_with(base.path()), "{title}: {}", asked.path);
    assert_eq!(asked.json()["model"], json!(upstream.model), "{title}");
    assert_eq!(answer.status, 200, "{title}: {answer}");
    let said: Value = answer.json();
    assert_eq!(said["choices"][0]["message"]["content"], ANSWER, "{title}: {answer}");
    assert_eq!(
        (&said["usage"]["prompt_tokens"], &said["usage"]["completion_tokens"]),
        (&json!(13), &json!(5))
    );
    (asked, answer)
}

#[apply(fact)]
async fn recipes_of_the_chat_api_are_served_as_printed() {
    let (asked, answer) = served("Vertex AI").await;
    assert_eq!(asked.path, "/v1/projects/PROJECT/locations/global/endpoints/openapi/chat/completions");
    assert_eq!(asked.header("authorization"), format!("Bearer {KEY}"));
    assert_eq!(answer.cost(), usd("0.00006625"), "13 × 1.25 and 5 × 10 millionths");

    let (asked, answer) = served("vLLM").await;
    assert_eq!((asked.path.as_str(), asked.header("authorization")), ("/v1/chat/completions", ""));
    assert_eq!(asked.json()["max_tokens"], 100);
    assert_eq!(answer.cost(), usd("0.0000033"), "13 × 0.10 and 5 × 0.40 millionths");

    let (asked, _) = served("Groq").await;
    assert_eq!(
        (asked.path.as_str(), &asked.json()["max_completion_tokens"]),
        ("/openai/v1/chat/completions", &json!(100))
    );
}

#[apply(fact)]
async fn recipes_of_the_responses_api_are_served_as_printed() {
    for (title, path, header, value) in [
        ("OpenAI", "/v1/responses", "authorization", format!("Bearer {KEY}")),
        ("Azure OpenAI, v1 API", "/openai/v1/responses", "api-key", KEY.to_owned()),
    ] {
        let (asked, answer) = served(title).await;
        assert_eq!((asked.path.as_str(), asked.header(header)), (path, value.as_str()));
        let body = asked.json();
        assert_eq!((&body["max_output_tokens"], &body["store"]), (&json!(100), &json!(false)), "{body}");
        assert_eq!(answer.cost(), usd("0.000152"), "13 × 4 and 5 × 20 millionths");
    }
}

#[apply(fact)]
async fn recipes_of_the_messages_api_are_served_as_printed() {
    for (title, path) in
        [("Anthropic", "/v1/messages"), ("Amazon Bedrock, Anthropic API", "/anthropic/v1/messages")]
    {
        let (asked, answer) = served(title).await;
        assert_eq!(
            (asked.path.as_str(), asked.header("x-api-key"), asked.header("authorization")),
            (path, KEY, "")
        );
        assert_eq!(asked.header("anthropic-version"), "2023-06-01");
        assert_eq!(asked.json()["max_tokens"], 100);
        assert_eq!(answer.cost(), usd("0.000076"), "13 × 2 and 5 × 10 millionths");
    }
}
