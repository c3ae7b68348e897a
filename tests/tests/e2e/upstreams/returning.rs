//! Conversations of several turns with stand-ins for the vendors of all presets, which refuse what these refuse.

mod vendors;

use http::Method;
use serde_json::{Value, json};
use shared_catalog::{Preset, UpstreamApi};
use tests::harness::{ApiKey, Models, Options, Stack, StandIn};

use vendors::{CALLS, TEXT, vendor};

/// A model for each preset, whose server is a stand-in.
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

/// A client of a dialect that repeats whatever it was answered.
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

    /// Takes an answer, and answers its calls. Returns the text and the names of the calls.
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
    for (preset, _) in &servers {
        for api in [UpstreamApi::Chat, UpstreamApi::Messages, UpstreamApi::Responses] {
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
        }
    }
}

#[apply(fact)]
async fn what_a_server_refuses_is_left_out_of_a_second_try_and_then_of_all_requests() {
    let (stack, servers) = stack().await;
    let key = stack.key().await;
    // They refuse whole answers, and the options of a stream.
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

/// A client decides what the server fetches, which may fail at the first try alone.
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
