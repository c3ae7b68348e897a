//! What a client reads from answers in its dialect, whole or streamed, as its SDK would combine them.

use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientDialect {
    Chat,
    Responses,
    Messages,
}

/// What a client has read of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    pub text: String,
    pub reasoning: String,
    pub refusal: String,
    /// Name and arguments of each tool call.
    pub calls: Vec<[String; 2]>,
    /// Finish reason, in chat's words.
    pub finish: String,
    /// Prompt tokens, how many of them were cached, and output tokens; `None` if they are an estimate.
    pub usage: Option<[u64; 3]>,
    /// Code of an error.
    pub error: Option<String>,
}

impl ClientDialect {
    pub const ALL: [Self; 3] = [Self::Chat, Self::Responses, Self::Messages];
}

impl Read {
    pub fn whole(dialect: ClientDialect, answer: &Value) -> Self {
        match dialect {
            ClientDialect::Chat => Self::of_chat(answer),
            ClientDialect::Responses => Self::of_response(answer),
            ClientDialect::Messages => Self::of_message(answer),
        }
    }

    /// Reads the events of a stream.
    pub fn stream(dialect: ClientDialect, body: &str) -> Self {
        let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<Value> = data.filter_map(|data| serde_json::from_str(data).ok()).collect();
        match dialect {
            ClientDialect::Chat => Self::of_chunks(&events),
            ClientDialect::Responses => Self::of_response_events(&events),
            ClientDialect::Messages => Self::of_message_events(&events),
        }
    }

    /// Returns the part of this that a dialect can express.
    #[must_use]
    pub fn in_dialect(mut self, dialect: ClientDialect) -> Self {
        // In Messages, a refusal is text with a stop reason.
        if dialect == ClientDialect::Messages && !self.refusal.is_empty() {
            self.text += &std::mem::take(&mut self.refusal);
            self.finish = "content_filter".into();
        }
        self
    }

    fn of_chat(answer: &Value) -> Self {
        let choice = &answer["choices"][0];
        let mut read =
            Self { usage: chat_usage(&answer["usage"]), error: code(&answer["error"]), ..Self::default() };
        read.add_chat(&choice["message"]);
        read.finish = word(&choice["finish_reason"]);
        read
    }

    fn of_chunks(events: &[Value]) -> Self {
        let mut read = Self::default();
        for event in events {
            read.error = read.error.take().or_else(|| code(&event["error"]));
            read.usage = read.usage.or_else(|| chat_usage(&event["usage"]));
            for choice in event["choices"].as_array().into_iter().flatten() {
                assert_eq!(choice["index"], 0, "one choice was asked for: {event}");
                let is_text = choice["finish_reason"].is_null() && choice["delta"]["content"].is_string();
                assert!(read.finish.is_empty() || is_text, "nothing but text comes after the end: {event}");
                read.add_chat(&choice["delta"]);
                read.finish += &word(&choice["finish_reason"]);
            }
        }
        read
    }

    /// Adds a message or a delta as SDKs do, matching calls by their indexes.
    fn add_chat(&mut self, message: &Value) {
        self.text += &word(&message["content"]);
        self.reasoning += &word(&message["reasoning_content"]);
        self.refusal += &word(&message["refusal"]);
        for (place, call) in message["tool_calls"].as_array().into_iter().flatten().enumerate() {
            let index = call["index"].as_u64().map_or(place, |index| usize::try_from(index).unwrap());
            if self.calls.len() <= index {
                self.calls.resize(index + 1, [String::new(), String::new()]);
            }
            assert!(
                call["function"]["arguments"].is_string(),
                "clients read arguments without asking: {call}"
            );
            self.calls[index][0] += &word(&call["function"]["name"]);
            self.calls[index][1] += &word(&call["function"]["arguments"]);
        }
    }

    fn of_response(response: &Value) -> Self {
        let usage = &response["usage"];
        let count = |value: &Value| value.as_u64();
        let mut read = Self { error: code(&response["error"]), ..Self::default() };
        if let (Some(prompt), Some(output)) = (count(&usage["input_tokens"]), count(&usage["output_tokens"]))
        {
            let cached = count(&usage["input_tokens_details"]["cached_tokens"]).unwrap_or(0);
            read.usage = Some([prompt, cached, output]);
        }
        for item in response["output"].as_array().into_iter().flatten() {
            match item["type"].as_str().unwrap_or_default() {
                "function_call" => {
                    let told = &item["arguments"];
                    let arguments = if told.is_string() { word(told) } else { told.to_string() };
                    read.calls.push([word(&item["name"]), arguments]);
                }
                "message" => {
                    for part in item["content"].as_array().into_iter().flatten() {
                        read.text += &word(&part["text"]);
                        read.refusal += &word(&part["refusal"]);
                    }
                }
                "reasoning" => {
                    let parts = item["content"].as_array().filter(|parts| !parts.is_empty());
                    let parts = parts.or(item["summary"].as_array()).into_iter().flatten();
                    let parts: Vec<String> = parts.map(|part| word(&part["text"])).collect();
                    read.reasoning += &parts.join("\n\n");
                }
                _ => {}
            }
        }
        read.finish = match (
            word(&response["status"]).as_str(),
            word(&response["incomplete_details"]["reason"]).as_str(),
        ) {
            ("incomplete", "content_filter") => "content_filter".into(),
            ("incomplete", _) => "length".into(),
            ("completed" | "complete", _) if !read.calls.is_empty() => "tool_calls".into(),
            ("completed" | "complete", _) => "stop".into(),
            _ => String::new(),
        };
        read
    }

    fn of_response_events(events: &[Value]) -> Self {
        let (mut pieces, mut end, mut summary) = (Self::default(), Self::default(), String::new());
        for event in events {
            let delta = word(&event["delta"]);
            match event["type"].as_str().unwrap_or_default() {
                "response.output_text.delta" => pieces.text += &delta,
                "response.refusal.delta" => pieces.refusal += &delta,
                "response.reasoning_text.delta" => pieces.reasoning += &delta,
                "response.reasoning_summary_text.delta" => summary += &delta,
                "response.output_item.added" if event["item"]["type"] == "function_call" => {
                    pieces.calls.push([word(&event["item"]["name"]), String::new()]);
                }
                "response.function_call_arguments.delta" => {
                    pieces.calls.last_mut().expect("a call has begun")[1] += &delta;
                }
                "response.completed" | "response.incomplete" | "response.failed" => {
                    end = Self::of_response(&event["response"]);
                }
                "error" => end.error = Some(word(&event["code"])),
                _ => {}
            }
        }
        if pieces.reasoning.is_empty() {
            pieces.reasoning = summary;
        }
        // SDKs show the last event, which repeats the pieces. If the server's own events are passed on, it may contain
        // more.
        let has_more = pieces.len() < end.len();
        Self {
            finish: end.finish.clone(),
            usage: end.usage,
            error: end.error.clone(),
            ..if has_more { end } else { pieces }
        }
    }

    /// Counts the bytes of all texts.
    fn len(&self) -> usize {
        let calls: usize = self.calls.iter().flatten().map(String::len).sum();
        self.text.len() + self.reasoning.len() + self.refusal.len() + calls
    }

    fn of_message(message: &Value) -> Self {
        let mut read = Self {
            usage: message_usage(&message["usage"]),
            error: kind(&message["error"]),
            ..Self::default()
        };
        for block in message["content"].as_array().into_iter().flatten() {
            read.add_block(block);
            if block["type"] == "tool_use" {
                read.calls.last_mut().expect("it was added")[1] = block["input"].to_string();
            }
        }
        read.finish = stop_reason(&message["stop_reason"]);
        read
    }

    fn add_block(&mut self, block: &Value) {
        match block["type"].as_str().unwrap_or_default() {
            "text" | "text_delta" => self.text += &word(&block["text"]),
            "thinking" | "thinking_delta" => self.reasoning += &word(&block["thinking"]),
            "tool_use" => self.calls.push([word(&block["name"]), String::new()]),
            _ => {}
        }
    }

    fn of_message_events(events: &[Value]) -> Self {
        let (mut read, mut usage, mut inputs) = (Self::default(), Value::Null, Vec::new());
        // Indexes of the blocks that are calls.
        let mut begun = Vec::new();
        for event in events {
            match event["type"].as_str().unwrap_or_default() {
                "message_start" => usage = event["message"]["usage"].clone(),
                "content_block_start" => {
                    let block = &event["content_block"];
                    read.add_block(block);
                    if block["type"] == "tool_use" {
                        inputs.push(block["input"].to_string());
                        begun.push(&event["index"]);
                    }
                }
                "content_block_delta" if event["delta"]["type"] == "input_json_delta" => {
                    let at =
                        begun.iter().rposition(|index| **index == event["index"]).expect("a call has begun");
                    read.calls[at][1] += &word(&event["delta"]["partial_json"]);
                }
                "content_block_delta" => read.add_block(&event["delta"]),
                "message_delta" => {
                    read.finish = stop_reason(&event["delta"]["stop_reason"]);
                    for (name, count) in event["usage"].as_object().into_iter().flatten() {
                        usage[name] = count.clone();
                    }
                    read.usage = message_usage(&usage);
                }
                "error" => read.error = kind(&event["error"]),
                _ => {}
            }
        }
        // A call without pieces keeps the input that it started with.
        for (call, input) in read.calls.iter_mut().zip(inputs) {
            if call[1].is_empty() {
                call[1] = input;
            }
        }
        read
    }
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn code(error: &Value) -> Option<String> {
    error.is_object().then(|| word(&error["code"]))
}

fn kind(error: &Value) -> Option<String> {
    error.is_object().then(|| word(&error["type"]))
}

fn chat_usage(usage: &Value) -> Option<[u64; 3]> {
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
    Some([usage["prompt_tokens"].as_u64()?, cached, usage["completion_tokens"].as_u64()?])
}

fn message_usage(usage: &Value) -> Option<[u64; 3]> {
    let cached = usage["cache_read_input_tokens"].as_u64().unwrap_or(0);
    let written = usage["cache_creation_input_tokens"].as_u64().unwrap_or(0);
    Some([usage["input_tokens"].as_u64()? + cached + written, cached, usage["output_tokens"].as_u64()?])
}

fn stop_reason(reason: &Value) -> String {
    match reason.as_str().unwrap_or_default() {
        "end_turn" | "stop_sequence" => "stop",
        "max_tokens" | "model_context_window_exceeded" => "length",
        "tool_use" => "tool_calls",
        "refusal" => "content_filter",
        other => other,
    }
    .to_owned()
}
