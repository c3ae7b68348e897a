//! Writes one answer: text, tool calls, or JSON that follows a schema.

use std::ops::Range;

use local_model_transformer::CONTEXT_TOKENS;
use serde_json::Value;
use shared::error::ApiError;
use tokio::sync::mpsc;

use crate::{
    fill,
    output::{Delta, TextWriter},
    prompt::Tool,
    reader::{Halt, Model, Reader},
    sampler::Sampler,
    tokenizer::{CALL_BEGIN, CALL_END, END_OF_TEXT, TURN_END},
};

/// What an answer may consist of.
#[derive(Default)]
pub(crate) struct Form {
    /// Tools that the answer may call. If `must_call` is set, it must call one of them.
    pub(crate) tools: Vec<Tool>,
    pub(crate) must_call: bool,
    /// Whether the answer may contain several calls.
    pub(crate) is_parallel: bool,
    /// Schema for the answer if it calls no tool.
    pub(crate) schema: Option<Value>,
    /// Number from which the ids of calls are made.
    pub(crate) call_ids: u64,
}

pub(crate) struct Request {
    pub(crate) prompt: Vec<u32>,
    /// Maximum number of tokens in the answer, never zero.
    pub(crate) max_tokens: usize,
    pub(crate) sampler: Sampler,
    /// Texts at which the answer stops; it does not contain them.
    pub(crate) stops: Vec<String>,
    pub(crate) form: Form,
}

pub(crate) struct AnswerEvent {
    pub(crate) delta: Delta,
    pub(crate) prompt_tokens: usize,
    /// Number of tokens in the answer so far, including the one that ends it.
    pub(crate) written: usize,
}

pub(crate) type EventSender = mpsc::UnboundedSender<Result<AnswerEvent, ApiError>>;

/// An answer in progress, on a thread that may block.
pub(crate) struct AnswerWriter<'a> {
    model: &'a Model,
    reader: Reader<'a>,
    events: &'a EventSender,
    form: &'a Form,
    text: TextWriter,
    /// Tokens of prompt and answer, the length of the prompt, and the limit on both together.
    tokens: Vec<u32>,
    prompt_tokens: usize,
    limit: usize,
    calls: usize,
}

/// Writes an answer and its end, unless the client leaves.
pub(crate) fn write(model: &Model, request: Request, events: &EventSender) {
    let Request { prompt, max_tokens, sampler, stops, form } = request;
    let mut answer = AnswerWriter {
        model,
        reader: Reader::new(model, sampler, Box::new(|| events.is_closed())),
        events,
        form: &form,
        text: TextWriter::new(stops),
        prompt_tokens: prompt.len(),
        limit: prompt.len().saturating_add(max_tokens).min(CONTEXT_TOKENS),
        tokens: prompt,
        calls: 0,
    };
    let halt = answer.run();
    let rest = answer.text.finish();
    answer.send(Delta::Text(rest));
    match halt {
        Ok(reason) | Err(Halt::Ended(reason)) => answer.send(Delta::Finished(reason)),
        // The channel may be closed by now, which does not matter.
        Err(Halt::Refused(error)) => drop(events.send(Err(error))),
        Err(Halt::Left) => {}
    }
}

impl<'a> AnswerWriter<'a> {
    fn run(&mut self) -> Result<&'static str, Halt> {
        if self.form.must_call {
            return self.call();
        }
        loop {
            let token = self.reader.next(&self.tokens, |_| true)?;
            if token == CALL_BEGIN && !self.form.tools.is_empty() {
                return self.call();
            }
            if let Some(schema) = &self.form.schema {
                return self.json(schema);
            }
            if [END_OF_TEXT, TURN_END].contains(&token) {
                return Ok(self.end("stop"));
            }
            self.push(token)?;
        }
    }

    /// Adds the token that ends an answer; it counts as written.
    fn end(&mut self, reason: &'static str) -> &'static str {
        self.tokens.push(TURN_END);
        reason
    }

    /// Adds a token to the text.
    fn push(&mut self, token: u32) -> Result<(), Halt> {
        self.tokens.push(token);
        let text = self.text.push(&self.model.tokenizer.bytes[token as usize]);
        self.send(Delta::Text(text));
        if self.text.is_stopped { Err(Halt::Ended("stop")) } else { self.bounded() }
    }

    /// Adds a token without showing it.
    fn push_hidden(&mut self, token: u32) -> Result<(), Halt> {
        self.tokens.push(token);
        self.bounded()
    }

    /// Ends an answer that has no room for another token.
    fn bounded(&self) -> Result<(), Halt> {
        if self.tokens.len() >= self.limit { Err(Halt::Ended("length")) } else { Ok(()) }
    }

    /// Writes JSON that follows a schema.
    fn json(&mut self, schema: &Value) -> Result<&'static str, Halt> {
        let before = self.tokens.clone();
        let text = self.filled(&before, schema, String::new())?;
        for token in self.model.tokenizer.encode_text(&text) {
            self.push(token)?;
        }
        Ok(self.end("stop"))
    }

    /// Adds a value that follows a schema to a text, or only its beginning if the answer has no room for more.
    fn filled(&mut self, before: &[u32], schema: &Value, text: String) -> Result<String, Halt> {
        let room = self.limit.saturating_sub(before.len());
        fill::fill(&mut self.reader, before, room, schema, text)
    }

    /// Writes a tool call, and further ones while the model begins them.
    fn call(&mut self) -> Result<&'static str, Halt> {
        let rest = self.text.finish();
        self.send(Delta::Text(rest));
        let between = self.model.tokenizer.encode_text("\n");
        loop {
            let before = [&self.tokens[..], &[CALL_BEGIN]].concat();
            let Tool { function } = self.chosen(&before)?;
            let name = Value::from(function.name.as_str());
            let schema = fill::of_arguments(function.parameters.as_ref()).map_err(Halt::Refused)?;
            let head = format!("\n{{\"name\": {name}, \"arguments\": ");
            let text = self.filled(&before, &schema, head.clone())?;
            self.push_hidden(CALL_BEGIN)?;
            self.push_call(&function.name, head.len()..text.len(), &format!("{text}}}\n"))?;
            self.push_hidden(CALL_END)?;
            self.calls += 1;
            if !self.form.is_parallel {
                return Ok(self.end("tool_calls"));
            }
            let may_follow =
                |token| [END_OF_TEXT, TURN_END, CALL_BEGIN].contains(&token) || between.contains(&token);
            let token = self.reader.next(&self.tokens, may_follow)?;
            if [END_OF_TEXT, TURN_END].contains(&token) {
                return Ok(self.end("tool_calls"));
            }
            if token != CALL_BEGIN {
                self.push_hidden(token)?;
            }
        }
    }

    /// Returns the tool that the model names or, if it names none, the first one.
    fn chosen(&mut self, before: &[u32]) -> Result<&'a Tool, Halt> {
        let tools = &self.form.tools;
        let mut named = String::new();
        if tools.len() > 1 {
            named = self.reader.draft(before, "\n{\"name\": \"", |written| written.contains('"'))?;
        }
        let named = named.split('"').next();
        let tool = tools.iter().find(|tool| named == Some(tool.function.name.as_str())).or(tools.first());
        tool.ok_or_else(|| Halt::Refused(ApiError::internal()))
    }

    /// Adds the tokens of a call. Its name is shown first, and its arguments as they are written.
    fn push_call(&mut self, name: &str, arguments: Range<usize>, text: &str) -> Result<(), Halt> {
        let (mut writer, mut end) = (TextWriter::default(), 0);
        for token in self.model.tokenizer.encode_text(text) {
            let bytes = &self.model.tokenizer.bytes[token as usize];
            let begin = end;
            end += bytes.len();
            self.tokens.push(token);
            if begin < arguments.start && end >= arguments.start {
                let id = self.form.call_ids.wrapping_add(self.calls as u64);
                self.send(Delta::ToolCall(self.calls, format!("call_{id:016x}"), name.to_owned()));
            }
            let shown =
                begin.clamp(arguments.start, arguments.end)..end.clamp(arguments.start, arguments.end);
            let text = writer.push(&text.as_bytes()[shown]);
            self.send(Delta::Arguments(self.calls, text));
            self.bounded()?;
        }
        Ok(())
    }

    fn send(&self, delta: Delta) {
        if !matches!(&delta, Delta::Text(text) | Delta::Arguments(_, text) if text.is_empty()) {
            let written = self.tokens.len() - self.prompt_tokens;
            // Sending the next token shows whether the client has left.
            let _ = self.events.send(Ok(AnswerEvent { delta, prompt_tokens: self.prompt_tokens, written }));
        }
    }
}
