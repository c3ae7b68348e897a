//! Wire format of chat answers.

use std::{borrow::Cow, fmt::Write as _};

use serde_json::{Value, json};

use crate::upstream::{
    script::{Script, Token, Usage, text, word},
    style::{ReasoningTold, Style},
};

/// Creation time of every scripted generation.
const CREATED: u64 = 1_700_000_000;

/// Writer of one stream's events.
pub(crate) struct Events {
    /// Start of each chunk, up to the choices.
    head: String,
    style: Style,
    /// Number of alternatives reported for each token of text.
    alternatives: Option<u64>,
    line_end: &'static str,
}

impl Events {
    /// Returns a writer for a stream of this model, with this number of alternatives for each token of text.
    pub(crate) fn new(model: &str, style: Style, alternatives: Option<u64>) -> Self {
        let head = format!(
            r#"{{"id":"chatcmpl-scripted","object":"chat.completion.chunk","created":{CREATED},"model":{},"system_fingerprint":"fp_scripted","choices":["#,
            Value::from(model)
        );
        Self { head, style, alternatives, line_end: if style.crlf { "\r\n" } else { "\n" } }
    }

    /// Returns the first chunk of a choice. `report` is the rendered usage report, if the chunk has one.
    pub(crate) fn role(&self, choice: u64, report: Option<&str>) -> String {
        self.chunk(choice, r#""role":"assistant","content":"""#, None, None, report)
    }

    /// Returns the chunk for the token with this index in a choice of this length; empty if the token is not sent, or
    /// only together with a later one.
    pub(crate) fn token(
        &self,
        script: &Script,
        (choice, length): (u64, u64),
        index: u64,
        finish: Option<&str>,
        report: Option<&str>,
    ) -> String {
        let repeated = |call: u64| {
            if self.style.repeats_calls { self.call_of(script, call) } else { r#""function":{"#.to_owned() }
        };
        let token = script.token(index);
        let words = match token {
            Token::Reasoning(_) if script.hidden_reasoning => return String::new(),
            Token::Text(index) => match script.event(index, length) {
                Some(words) => words,
                None => return String::new(),
            },
            Token::Reasoning(_) | Token::Tool { .. } => String::new(),
        };
        let mut delta = String::with_capacity(64);
        if self.style.role_everywhere {
            delta.push_str(r#""role":"assistant","#);
        }
        // Writing to a string cannot fail.
        let _ = match token {
            Token::Reasoning(index) => {
                write!(delta, r#""{}":"{}""#, self.style.reasoning.name(), word(index))
            }
            Token::Text(_) => write!(delta, r#""{}":{}"#, script.text_field(), Value::from(words)),
            Token::Tool { call, part: 0 } => {
                write!(
                    delta,
                    r#""tool_calls":[{{"index":{call},{}"arguments":""}}}}]"#,
                    self.call_of(script, call)
                )
            }
            Token::Tool { call, part } => write!(
                delta,
                r#""tool_calls":[{{"index":{call},{}"arguments":{}}}}}]"#,
                repeated(call),
                Value::from(script.arguments(call, part))
            ),
        };
        let logprobs = match token {
            Token::Text(index) => self.alternatives.map(|most| logprobs(script, [script.word(index)], most)),
            Token::Reasoning(_) | Token::Tool { .. } => None,
        };
        self.chunk(choice, &delta, logprobs, finish, report)
    }

    /// Returns the last chunk of a choice.
    pub(crate) fn finish(&self, choice: u64, reason: &str, report: Option<&str>) -> String {
        self.chunk(choice, "", None, Some(reason), report)
    }

    /// Returns a chunk that contains only a usage report.
    pub(crate) fn report(&self, report: &str) -> String {
        format!("data: {}],{report}}}{}", self.head, self.gap())
    }

    /// Returns a comment line, which is not an event.
    pub(crate) fn comment(&self) -> String {
        format!(": still here{}", self.gap())
    }

    pub(crate) fn data(&self, data: &str) -> String {
        format!("data: {data}{}", self.gap())
    }

    fn chunk(
        &self,
        choice: u64,
        delta: &str,
        logprobs: Option<Value>,
        finish: Option<&str>,
        report: Option<&str>,
    ) -> String {
        let mut out = String::with_capacity(320);
        let _ = write!(out, r#"data: {}{{"index":{choice},"delta":{{{delta}}},"logprobs":"#, self.head);
        let _ = match logprobs {
            // Within an event, each line break in the data starts another data line.
            Some(logprobs) if self.style.lines => {
                write!(out, "{},", format!("{logprobs:#}").replace('\n', "\ndata: "))
            }
            Some(logprobs) => write!(out, "{logprobs},"),
            None => write!(out, "null,"),
        };
        let _ = match finish {
            Some(reason) => write!(out, r#""finish_reason":"{reason}"}}]"#),
            None => write!(out, r#""finish_reason":null}}]"#),
        };
        if let Some(report) = report {
            let _ = write!(out, ",{report}");
        }
        let _ = write!(out, "}}{}", self.gap());
        out
    }

    /// Returns the members that identify the call of a piece, up to the call's arguments.
    fn call_of(&self, script: &Script, call: u64) -> String {
        let (id, name) = (self.style.call_ids.member(call), script.called_name(call));
        format!(r#"{id}"type":"function","function":{{"name":"{name}","#)
    }

    fn gap(&self) -> &'static str {
        if self.line_end == "\n" { "\n\n" } else { "\r\n\r\n" }
    }
}

/// Returns log probabilities for these tokens, each with this number of alternatives, and with some members that the
/// API does not define.
fn logprobs<'a>(script: &Script, tokens: impl IntoIterator<Item = Cow<'a, str>>, alternatives: u64) -> Value {
    let one = |token: &str, rank: u64| {
        // The likeliest has -0.25, the next one -0.5, and so on: every float type holds these numbers exactly.
        let logprob = -f64::from(u32::try_from(rank + 1).unwrap()) / 4.0;
        json!({"token": token, "logprob": logprob, "bytes": token.as_bytes(), "token_id": rank})
    };
    let told = tokens.into_iter().map(|token| {
        let mut told = one(&token, 0);
        let others = (1..alternatives).map(|rank| one(word(rank), rank));
        told["top_logprobs"] = (alternatives > 0).then(|| one(&token, 0)).into_iter().chain(others).collect();
        told
    });
    json!({script.text_field(): told.collect::<Vec<_>>(), "worker": "worker-7.internal"})
}

/// Returns a whole answer, given the length and the finish reason of each choice. The usage is optional.
pub(crate) fn whole(
    model: &str,
    script: &Script,
    choices: &[(u64, Option<&str>)],
    alternatives: Option<u64>,
    report: Option<&str>,
) -> String {
    let choice = |(index, (length, finish)): (usize, &(u64, Option<&str>))| {
        let words = (0..text_tokens(script, *length)).map(|index| script.word(index));
        let logprobs = alternatives.map(|most| logprobs(script, words, most));
        json!({"index": index, "message": message(script, *length), "logprobs": logprobs, "finish_reason": finish})
    };
    let choices: Vec<Value> = choices.iter().enumerate().map(choice).collect();
    let mut answer = json!({
        "id": "chatcmpl-scripted", "object": "chat.completion", "created": CREATED, "model": model,
        "system_fingerprint": "fp_scripted", "choices": choices,
    })
    .to_string();
    if let Some(report) = report {
        // The report is inserted verbatim: reading it as JSON would change its numbers.
        answer.truncate(answer.len() - 1);
        let _ = write!(answer, ",{report}}}");
    }
    answer
}

/// Returns the number of text tokens in an answer of this length.
fn text_tokens(script: &Script, length: u64) -> u64 {
    script.completion_tokens.min(length) - script.reasoning_tokens.min(script.completion_tokens).min(length)
}

fn message(script: &Script, length: u64) -> Value {
    let reasoning = script.reasoning_tokens.min(script.completion_tokens).min(length);
    let words = text_tokens(script, length);
    let calls = length.saturating_sub(script.completion_tokens) / crate::upstream::script::TOKENS_PER_CALL;
    let mut message = json!({"role": "assistant", "content": null});
    message[script.text_field()] = script.words(words).into();
    if reasoning > 0 {
        message[script.style.reasoning.name()] = text(reasoning).into();
    }
    if calls > 0 {
        let call = |index| {
            let id = script.style.call_ids.member(index);
            let arguments = Value::from(script.arguments(index, 1) + &script.arguments(index, 2));
            let name = script.called_name(index);
            let call = format!(
                r#"{{{id}"type":"function","function":{{"name":"{name}","arguments":{arguments}}}}}"#
            );
            serde_json::from_str::<Value>(&call).unwrap()
        };
        message["tool_calls"] = (0..calls).map(call).collect();
        if words == 0 {
            message["content"] = Value::Null;
        }
    }
    message
}

/// Returns the member `usage`, or `timings`, or both, as llama.cpp's server does at the end of a stream.
pub(crate) fn report(usage: Usage, reasoning: u64, script: &Script, in_chunk: bool) -> String {
    let left_out = script.style.no_cached_tokens || (in_chunk && script.style.cached_tokens_at_end);
    let (told, timings) = (usage_json(usage, reasoning, script, !left_out), timings_json(usage));
    match (script.style.timings, in_chunk) {
        (true, true) => format!(r#""timings":{timings}"#),
        (true, false) => format!(r#""usage":{told},"timings":{timings}"#),
        (false, _) => format!(r#""usage":{told}"#),
    }
}

fn timings_json(Usage { prompt, cached, completion }: Usage) -> String {
    let read = prompt.saturating_sub(cached);
    format!(
        r#"{{"cache_n":{cached},"prompt_n":{read},"prompt_ms":1.5,"predicted_n":{completion},"predicted_ms":2.5}}"#
    )
}

/// Returns the object `usage`, with or without the cached tokens.
fn usage_json(usage: Usage, reasoning: u64, script: &Script, with_cached: bool) -> String {
    let Usage { prompt, cached, completion } = usage;
    let mut details = String::new();
    if with_cached {
        details = format!(r#","prompt_tokens_details":{{"cached_tokens":{cached}}}"#);
    }
    let beside = if script.style.reasoning_beside { script.reasoning_tokens.min(completion) } else { 0 };
    if beside > 0 {
        // Writing to a string cannot fail.
        let _ = write!(details, r#","completion_tokens_details":{{"reasoning_tokens":{beside}}}"#);
    }
    let _ = match script.style.reasoning_told {
        ReasoningTold::Nowhere => Ok(()),
        ReasoningTold::InDetails => {
            write!(details, r#","completion_tokens_details":{{"reasoning_tokens":{reasoning}}}"#)
        }
        ReasoningTold::AtTop => write!(details, r#","reasoning_tokens":{reasoning}"#),
    };
    format!(
        r#"{{"prompt_tokens":{prompt},"completion_tokens":{},"total_tokens":{}{details}}}"#,
        completion - beside,
        prompt.saturating_add(completion)
    )
}
