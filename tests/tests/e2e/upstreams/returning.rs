//! Conversations over several turns with stand-ins for the vendors of all presets. Each stand-in refuses what its
//! vendor refuses.

mod vendors;

use std::fs;

use http::Method;
use serde_json::{Value, json};
use shared_catalog::{Preset, UpstreamApi};
use tests::harness::{ApiKey, Models, Options, Stack, StandIn};

use vendors::{CACHED, CALLS, SIGNED, TEXT, vendor};

/// The page with the table of what passes between clients and vendors.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/clients.md");
/// The clients in the table, with their letters there.
const CLIENTS: [(UpstreamApi, &str); 3] =
    [(UpstreamApi::Chat, "C"), (UpstreamApi::Responses, "R"), (UpstreamApi::Messages, "M")];
/// A cell in the table that covers all clients.
const ALL: &str = "C R M";

/// Starts a stack with a model for each preset, whose server is a stand-in.
async fn stack() -> (Stack, Vec<(Preset, StandIn)>) {
    let mut catalogue = "[service]\nname = \"f\"\nprovider = \"f\"\ndocs = \"f\"\n".to_owned();
    let (mut servers, mut env) = (Vec::new(), Vec::new());
    for preset in Preset::all().unwrap() {
        let name: &'static str = preset.name.clone().leak();
        let stand_in = StandIn::start(move |asked| vendor(name, asked)).await;
        let fields = preset.upstream_fields().map(|(name, value)| {
            let here = || format!("\"{}\"", stand_in.url("/v1"));
            format!("{name} = {}\n", if name == "url" { here() } else { value })
        });
        let entry = format!(
            "[[model]]\nid = \"{name}\"\nowned_by = \"o\"\ncontext_window = 200000\nmax_output_tokens = 8192\n\
             price = {{ input = \"1\", cached_input = \"1\", output = \"1\" }}\n[[model.upstream]]\nmodel = \"up\"\n{}",
            fields.collect::<String>()
        );
        catalogue.push_str(&entry);
        if let Some(variable) = &preset.api_key_env {
            env.push((&*variable.clone().leak(), "sk-vendor".to_owned()));
        }
        servers.push((preset, stand_in));
    }
    let options = Options { models: Models::Text(catalogue.leak()), env, ..Options::default() };
    let stack = Stack::with(options).await;
    stack.others_spend();
    (stack, servers)
}

/// A client in a dialect. It sends back every answer that it has received.
struct Client {
    api: UpstreamApi,
    history: Vec<Value>,
}

impl Client {
    fn new(api: UpstreamApi) -> Self {
        let mut client = Self { api, history: Vec::new() };
        client.says("Read both.");
        client
    }

    fn says(&mut self, text: &str) {
        self.history.push(json!({"role": "user", "content": text}));
    }

    const fn route(&self) -> &'static str {
        match self.api {
            UpstreamApi::Chat => "/v1/chat/completions",
            UpstreamApi::Messages => "/v1/messages",
            UpstreamApi::Responses => "/v1/responses",
        }
    }

    fn body(&self, model: &str) -> Value {
        let schema = json!({"type": "object", "properties": {}});
        let function =
            |name: &&str| json!({"type": "function", "function": {"name": name, "parameters": schema}});
        let tool = |name: &&str| json!({"name": name, "input_schema": schema});
        let flat = |name: &&str| json!({"type": "function", "name": name, "parameters": schema});
        let history = &self.history;
        match self.api {
            UpstreamApi::Chat => {
                json!({"model": model, "messages": history, "max_tokens": 5000, "tools": CALLS.iter().map(function).collect::<Vec<_>>()})
            }
            UpstreamApi::Messages => json!({"model": model, "messages": history, "max_tokens": 5000,
                "thinking": {"type": "adaptive"}, "tools": CALLS.iter().map(tool).collect::<Vec<_>>()}),
            UpstreamApi::Responses => {
                json!({"model": model, "input": history, "max_output_tokens": 5000, "tools": CALLS.iter().map(flat).collect::<Vec<_>>()})
            }
        }
    }

    /// Accepts an answer, and answers its calls. Returns the text and the names of the calls.
    fn takes(&mut self, answer: &Value) -> (String, Vec<String>) {
        let (mut text, mut calls) = (String::new(), Vec::new());
        let mut results = Vec::new();
        match self.api {
            UpstreamApi::Chat => {
                let message = &answer["choices"][0]["message"];
                text.push_str(message["content"].as_str().unwrap_or_default());
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    calls.push(call["function"]["name"].as_str().unwrap().to_owned());
                    results.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "x"}));
                }
                self.history.push(message.clone());
            }
            UpstreamApi::Messages => {
                let mut blocks = Vec::new();
                for block in answer["content"].as_array().unwrap() {
                    text.push_str(block["text"].as_str().unwrap_or_default());
                    if block["type"] == "tool_use" {
                        calls.push(block["name"].as_str().unwrap().to_owned());
                        blocks
                            .push(json!({"type": "tool_result", "tool_use_id": block["id"], "content": "x"}));
                    }
                }
                self.history.push(json!({"role": "assistant", "content": answer["content"]}));
                if !blocks.is_empty() {
                    results.push(json!({"role": "user", "content": blocks}));
                }
            }
            UpstreamApi::Responses => {
                for item in answer["output"].as_array().unwrap() {
                    text.push_str(
                        item["content"][0]["text"]
                            .as_str()
                            .filter(|_| item["type"] == "message")
                            .unwrap_or_default(),
                    );
                    if item["type"] == "function_call" {
                        calls.push(item["name"].as_str().unwrap().to_owned());
                        results.push(json!({"type": "function_call_output", "call_id": item["call_id"], "output": "x"}));
                    }
                    self.history.push(item.clone());
                }
            }
        }
        self.history.extend(results);
        (text, calls)
    }
}

async fn ask(stack: &Stack, key: &ApiKey, client: &mut Client, model: &str) -> (String, Vec<String>) {
    let url = stack.url(client.route());
    let answer = stack.http.send_as(&key.secret, Method::POST, &url, Some(client.body(model))).await;
    assert_eq!(answer.status, 200, "{model} {:?}: {answer} {}", client.api, json!(client.history));
    client.takes(&answer.json())
}

#[apply(fact)]
async fn an_agent_of_each_dialect_goes_on_for_four_turns_with_the_server_of_each_preset() {
    let (stack, servers) = stack().await;
    let key = stack.key().await;
    let mut rows = Vec::new();
    for (preset, stand_in) in &servers {
        let mut returned = Vec::new();
        for (api, letter) in CLIENTS {
            let mut client = Client::new(api);
            for call in CALLS {
                let (_, calls) = ask(&stack, &key, &mut client, &preset.name).await;
                assert_eq!(calls, [call], "{} {api:?}", preset.name);
            }
            let (text, calls) = ask(&stack, &key, &mut client, &preset.name).await;
            assert_eq!((text.as_str(), calls.len()), (TEXT, 0), "{} {api:?}", preset.name);
            client.says("And now?");
            let (text, _) = ask(&stack, &key, &mut client, &preset.name).await;
            assert_eq!(text, TEXT, "{} {api:?}", preset.name);
            let sent = last_asked(stand_in);
            returned.extend(SIGNED.iter().any(|mark| sent.contains(mark)).then_some(letter));
        }
        let returned = if returned.is_empty() { "–".to_owned() } else { returned.join(" ") };
        rows.push(format!("| `{}` | {ALL} | {returned} | {ALL} | {ALL} | {ALL} |\n", preset.name));
    }
    let (page, rows) = (fs::read_to_string(PAGE).unwrap(), rows.concat());
    assert!(page.contains(&rows), "{PAGE} lacks these rows:\n{rows}");
}

/// Returns the last body that a vendor received.
fn last_asked(stand_in: &StandIn) -> String {
    let asked = stand_in.asked().into_iter().rfind(|asked| asked.method == Method::POST).unwrap();
    asked.json().to_string()
}

/// The smallest PNG: one transparent pixel.
const IMAGE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Returns a question about an image, whose answer must follow a schema.
fn question(api: UpstreamApi, model: &str) -> Value {
    let (schema, url) = (
        json!({"type": "object", "properties": {"shape_of_it": {"type": "string"}}, "required": ["shape_of_it"], "additionalProperties": false}),
        format!("data:image/png;base64,{IMAGE}"),
    );
    let (text, named) = ("What is it?", "shape");
    match api {
        UpstreamApi::Chat => json!({"model": model, "max_tokens": 5000,
            "messages": [{"role": "user", "content": [
                {"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}]}],
            "response_format": {"type": "json_schema", "json_schema": {"name": named, "schema": schema, "strict": true}}}),
        UpstreamApi::Messages => json!({"model": model, "max_tokens": 5000,
            "messages": [{"role": "user", "content": [{"type": "text", "text": text},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}}]}],
            "output_config": {"format": {"type": "json_schema", "schema": schema}}}),
        UpstreamApi::Responses => json!({"model": model, "max_output_tokens": 5000,
            "input": [{"role": "user", "content": [
                {"type": "input_text", "text": text}, {"type": "input_image", "image_url": url}]}],
            "text": {"format": {"type": "json_schema", "name": named, "schema": schema, "strict": true}}}),
    }
}

#[apply(fact)]
async fn images_schemas_and_cached_tokens_pass_between_each_client_and_the_server_of_each_preset() {
    let (stack, servers) = stack().await;
    let key = stack.key().await;
    for (preset, stand_in) in &servers {
        for (api, _) in CLIENTS {
            let url = stack.url(Client::new(api).route());
            let body = question(api, &preset.name);
            let answer = stack.http.send_as(&key.secret, Method::POST, &url, Some(body)).await;
            assert_eq!(answer.status, 200, "{} {api:?}: {answer}", preset.name);
            let usage = &answer.json()["usage"];
            let cached = match api {
                UpstreamApi::Chat => &usage["prompt_tokens_details"]["cached_tokens"],
                UpstreamApi::Messages => &usage["cache_read_input_tokens"],
                UpstreamApi::Responses => &usage["input_tokens_details"]["cached_tokens"],
            };
            assert_eq!(cached, CACHED, "{} {api:?}: {usage}", preset.name);
            let sent = last_asked(stand_in);
            for part in [IMAGE, "shape_of_it"] {
                assert!(sent.contains(part), "{} {api:?} lacks {part}: {sent}", preset.name);
            }
        }
    }
}

#[apply(fact)]
async fn what_a_server_refuses_is_left_out_of_a_second_try_and_then_of_all_requests() {
    let (stack, servers) = stack().await;
    let key = stack.key().await;
    // These vendors refuse whole answers, or the options of a stream.
    for (name, stream) in [("dashscope", false), ("fireworks", false), ("together", true)] {
        let (_, stand_in) = servers.iter().find(|(preset, _)| preset.name == name).unwrap();
        for _ in 0..2 {
            let mut body = Client::new(UpstreamApi::Chat).body(name);
            body["stream"] = json!(stream);
            let url = stack.url("/v1/chat/completions");
            let answer = stack.http.send_as(&key.secret, Method::POST, &url, Some(body)).await;
            assert_eq!(answer.status, 200, "{name}: {answer}");
        }
        let posts = stand_in.asked().into_iter().filter(|asked| asked.method == Method::POST);
        let encodings: Vec<String> = posts.map(|asked| asked.header("accept-encoding").to_owned()).collect();
        assert!(encodings.iter().all(|encoding| encoding == "identity"), "{encodings:?}");
        let posts = encodings.len();
        assert_eq!(posts, 3, "{name}: the second request needs one try");
    }
}

/// Clients decide what the server fetches, and fetching may fail only the first time.
#[apply(fact)]
async fn a_request_for_which_a_server_fetches_an_image_teaches_nothing() {
    let (stack, servers) = stack().await;
    let key = stack.key().await;
    let (name, url) = ("together", stack.url("/v1/chat/completions"));
    let (_, stand_in) = servers.iter().find(|(preset, _)| preset.name == name).unwrap();
    let image = json!([{"type": "image_url", "image_url": {"url": "https://images.example.com/cat.png"}}]);
    for _ in 0..2 {
        let mut body = Client::new(UpstreamApi::Chat).body(name);
        body["stream"] = json!(true);
        body["messages"][0]["content"] = image.clone();
        let answer = stack.http.send_as(&key.secret, Method::POST, &url, Some(body)).await;
        assert_eq!(answer.status, 200, "{answer}");
    }
    let posts = stand_in.asked().into_iter().filter(|asked| asked.method == Method::POST).count();
    assert_eq!(posts, 4, "each request needs two tries");
}
