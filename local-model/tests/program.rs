//! The server as a program: what it says when it starts, and that it ends when it is told to.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

/// A running server, killed when the test is over.
struct Server {
    process: Child,
    /// What it said first.
    told: String,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_local-model"))
            .args(["--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut told).unwrap();
        Self { process, told }
    }

    fn address(&self) -> &str {
        self.told.trim_end().rsplit_once("http://").unwrap().1.strip_suffix("/v1").unwrap()
    }

    /// Sends a request and returns the whole response.
    fn request(&self, head: &str, body: &str) -> String {
        let mut connection = TcpStream::connect(self.address()).unwrap();
        let length = body.len();
        write!(
            connection,
            "{head} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut response = String::new();
        connection.read_to_string(&mut response).unwrap();
        response
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn it_says_what_it_serves_and_answers_there() {
    let server = Server::start(&["--served-model-name", "demo", "--context", "512", "--threads", "1"]);
    assert!(
        server.told.starts_with("serving demo (")
            && server.told.contains(", 512 tokens of context) on http://")
    );
    assert!(server.request("GET /health", "").starts_with("HTTP/1.1 200 OK\r\n"));
    let models = server.request("GET /v1/models", "");
    assert!(models.contains("\"id\":\"demo\"") && models.contains("\"max_model_len\":512"), "{models}");
    let answer = server.request(
        "POST /v1/chat/completions",
        r#"{"model": "demo", "messages": [{"role": "user", "content": "Hello!"}]}"#,
    );
    assert!(answer.contains("\"finish_reason\":\"stop\""), "{answer}");
    let counted =
        server.request("POST /tokenize", r#"{"messages": [{"role": "user", "content": "Hello!"}]}"#);
    assert!(counted.contains("\"count\":"), "{counted}");
}

#[test]
fn it_serves_a_folder_and_a_file_as_transformers_does() {
    let reference = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference");
    let expected: Value =
        serde_json::from_str(&std::fs::read_to_string(format!("{reference}/expected.json")).unwrap())
            .unwrap();
    for (path, name) in [("qwen2", "qwen2"), ("qwen3", "qwen3"), ("llama.gguf", "llama")] {
        let server = Server::start(&["--weights", &format!("{reference}/{path}")]);
        assert!(server.told.starts_with(&format!("serving {name} (")), "{}", server.told);
        for case in expected[path].as_array().unwrap() {
            let messages = json!([{"role": "user", "content": case["prompt"]}]);
            let body = json!({"messages": messages, "max_tokens": 24}).to_string();
            let response = server.request("POST /v1/chat/completions", &body);
            let answer: Value = serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap();
            // The last character may have been cut in half, and is then not shown.
            let content = answer["choices"][0]["message"]["content"].as_str().unwrap();
            let expected = case["answer"].as_str().unwrap().trim_end_matches('\u{fffd}');
            assert_eq!(content.trim_end_matches('\u{fffd}'), expected, "{path}");
            let tokens = case["prompt_tokens"].as_array().unwrap().len();
            assert_eq!(answer["usage"]["prompt_tokens"], tokens);
        }
    }
}

#[test]
fn even_random_weights_call_tools_as_their_schemas_say() {
    let server = Server::start(&["--weights", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference/qwen3")]);
    let parameters = json!({
        "type": "object",
        "properties": {"guests": {"type": "integer", "maximum": 20, "minimum": 1}, "place": {"enum": ["in", "out"]}},
        "required": ["guests", "place"],
    });
    let tools = json!([{"type": "function", "function": {"name": "book", "parameters": parameters}}]);
    for seed in 0..10 {
        let body = json!({
            "messages": [{"role": "user", "content": "Hello!"}], "tools": tools, "tool_choice": "required",
            "parallel_tool_calls": false, "temperature": 1, "seed": seed,
        });
        let response = server.request("POST /v1/chat/completions", &body.to_string());
        let answer: Value = serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap();
        let call = &answer["choices"][0]["message"]["tool_calls"][0]["function"];
        assert_eq!(call["name"], "book", "{answer}");
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        assert!((1..=20).contains(&arguments["guests"].as_i64().unwrap()), "{arguments}");
        assert!(arguments["place"] == "in" || arguments["place"] == "out", "{arguments}");
    }
}

#[test]
fn an_effort_that_the_model_was_not_taught_is_refused() {
    let server = Server::start(&["--weights", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference/qwen3")]);
    let body = r#"{"messages": [{"role": "user", "content": "Hello!"}], "reasoning_effort": "low"}"#;
    let response = server.request("POST /v1/chat/completions", body);
    assert!(
        response.starts_with("HTTP/1.1 400 ") && response.contains("\"param\":\"reasoning_effort\""),
        "{response}"
    );
}

#[test]
fn it_answers_what_it_has_begun_and_then_ends() {
    let mut server = Server::start(&[]);
    let mut connection = TcpStream::connect(server.address()).unwrap();
    let body = r#"{"messages": [{"role": "user", "content": "Count."}], "stream": true, "max_tokens": 300,
                   "logit_bias": {"0": -100, "2": -100}}"#;
    write!(
        connection,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut begun = [0; 64];
    connection.read_exact(&mut begun).unwrap();
    let told = Command::new("kill").args(["-TERM", &server.process.id().to_string()]).status().unwrap();
    assert!(told.success());
    let mut rest = String::new();
    connection.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: [DONE]"));
    assert!(server.process.wait().unwrap().success());
}

#[test]
fn weights_that_cannot_be_served_are_refused_with_a_sentence() {
    let run = |path: &str| {
        let arguments = ["--listen", "127.0.0.1:0", "--weights", path];
        let output = Command::new(env!("CARGO_BIN_EXE_local-model")).args(arguments).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    assert!(run(source).contains("FAREGATE_LOCAL_MODEL_WEIGHTS: cannot read"), "{}", run(source));
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    assert!(
        run(manifest).contains("supported: a GGUF file, or a folder with config.json"),
        "{}",
        run(manifest)
    );
}
