//! Tests of the server as a program, from its first line to its end.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

/// A running server, killed on drop.
struct Server {
    process: Child,
    first_line: String,
}

impl Server {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_local-model"))
            .args(["--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first_line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut first_line).unwrap();
        Self { process, first_line }
    }

    fn address(&self) -> &str {
        self.first_line.trim_end().rsplit_once("http://").unwrap().1.strip_suffix("/v1").unwrap()
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
fn it_reports_its_address_and_answers_there() {
    let server = Server::start();
    assert!(server.first_line.starts_with("serving tiny-demo (2048 tokens of context) on http://"));
    assert!(server.request("GET /health", "").starts_with("HTTP/1.1 200 OK\r\n"));
    let models = server.request("GET /v1/models", "");
    assert!(models.contains("\"id\":\"tiny-demo\""), "{models}");
    let answer = server.request(
        "POST /v1/chat/completions",
        r#"{"model": "tiny-demo", "messages": [{"role": "user", "content": "Hello!"}]}"#,
    );
    assert!(answer.contains("\"finish_reason\":\"stop\""), "{answer}");
    let counted =
        server.request("POST /tokenize", r#"{"messages": [{"role": "user", "content": "Hello!"}]}"#);
    assert!(counted.contains("\"count\":"), "{counted}");
}

#[test]
fn it_finishes_its_answers_and_then_ends() {
    let mut server = Server::start();
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
    let sent = Command::new("kill").args(["-TERM", &server.process.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let mut rest = String::new();
    connection.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: [DONE]"));
    assert!(server.process.wait().unwrap().success());
}
