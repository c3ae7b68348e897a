//! Checks the body of a chat request and turns it into a request to the engine.
//!
//! The gateway has already checked all fields. Here, a number outside its limits becomes the nearest allowed number,
//! and other invalid values count as absent.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use shared::error::{ApiError, Code};

use super::reply::StreamOptions;
use crate::{
    answer::{Form, Request},
    engine::Engine,
    fill,
    prompt::{self, Message, Prompt, Tool},
    sampler::Sampler,
};
use local_model_transformer::CONTEXT_TOKENS;

/// Fields that the model uses. All other fields are ignored, even `reasoning_effort`, since this model does not reason.
#[derive(Deserialize)]
struct ChatBody {
    messages: Vec<Message>,
    tools: Option<Vec<Tool>>,
    /// A mode (such as `auto`), or an object that names a function.
    #[serde(default)]
    tool_choice: Value,
    parallel_tool_calls: Option<bool>,
    #[serde(default)]
    response_format: Value,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<u32>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    temperature: Option<f32>,
    seed: Option<i64>,
    logit_bias: Option<BTreeMap<u32, f32>>,
    #[serde(default)]
    stop: Value,
}

/// Reads a chat request. Returns the request to the engine, and the stream's options if the answer should be a stream.
pub(super) fn chat(engine: &Engine, body: &[u8]) -> Result<(Request, Option<StreamOptions>), ApiError> {
    let mut body = read(body)?;
    if body.n.is_some_and(|choices| choices > 1) {
        return Err(ApiError::at(
            Code::UnsupportedValue,
            "n",
            "This model writes only one answer per request.",
        ));
    }
    if body.tool_choice == "none" {
        // Tools that must not be called are left out of the prompt.
        body.tools = None;
    }
    let prompt = body.prompt(engine)?;
    let form = body.form(engine, prompt.is_shortened)?;
    let stops = match &body.stop {
        Value::Array(stops) => stops.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        stop => stop.as_str().map(str::to_owned).into_iter().collect(),
    };
    let bias = body.logit_bias.unwrap_or_default().into_iter().collect();
    // Such a small model is right most often if it always chooses the likeliest token.
    let temperature = body.temperature.unwrap_or(0.0).clamp(0.0, 2.0);
    let seed = body.seed.map_or_else(|| engine.random(), i64::cast_unsigned);
    let request = Request {
        prompt: prompt.tokens,
        // Clients often ask for more tokens than fit into the context. The context then limits the answer.
        max_tokens: body.max_completion_tokens.or(body.max_tokens).unwrap_or(usize::MAX).max(1),
        sampler: Sampler::new(temperature, bias, seed),
        stops,
        form,
    };
    Ok((request, body.stream.unwrap_or(false).then(|| body.stream_options.unwrap_or_default())))
}

/// Reads a request to count tokens, and returns the tokens of its messages and tools.
pub(super) fn tokenize(engine: &Engine, body: &[u8]) -> Result<Vec<u32>, ApiError> {
    read(body)?.prompt(engine).map(|prompt| prompt.tokens)
}

fn read(body: &[u8]) -> Result<ChatBody, ApiError> {
    serde_json::from_slice(body).map_err(|error| {
        let code = if error.is_data() { Code::InvalidType } else { Code::InvalidJson };
        ApiError::new(code, format!("The request body is not a chat request: {error}."))
    })
}

impl ChatBody {
    /// Checks that the messages contain only text, and encodes them.
    fn prompt(&self, engine: &Engine) -> Result<Prompt, ApiError> {
        if !self.messages.iter().all(Message::is_text) {
            let message = "This model cannot read images or files. Connect a model that can.";
            return Err(ApiError::at(Code::UnsupportedValue, "messages", message));
        }
        let tools = self.tools.as_deref().unwrap_or_default();
        prompt::encode(&engine.model.tokenizer, &self.messages, tools).ok_or_else(too_long)
    }

    /// Returns what the answer may consist of, including the tools that it may call. If the prompt was shortened, the
    /// model does not see the tools, so it calls a tool only if the request demands a call.
    fn form(&mut self, engine: &Engine, is_shortened: bool) -> Result<Form, ApiError> {
        let named = self.tool_choice["function"]["name"].as_str();
        let must_call = named.is_some() || self.tool_choice == "required";
        let mut tools = self.tools.take().unwrap_or_default();
        tools.retain(|tool| match named {
            Some(name) => tool.function.name == name,
            None => must_call || !is_shortened,
        });
        if must_call && tools.is_empty() {
            let message = "A tool call is required, but there is no such tool.";
            return Err(ApiError::at(Code::InvalidValue, "tool_choice", message));
        }
        let format = &self.response_format;
        let schema = match format["type"].as_str() {
            Some("json_object") => Some(json!({"type": "object"})),
            Some("json_schema") => Some(format["json_schema"]["schema"].clone()),
            _ => None,
        };
        for tool in &tools {
            fill::check(&fill::of_arguments(tool.function.parameters.as_ref())?)?;
        }
        schema.iter().try_for_each(fill::check)?;
        let is_parallel = named.is_none() && self.parallel_tool_calls.unwrap_or(true);
        Ok(Form { tools, must_call, is_parallel, schema, call_ids: engine.random() })
    }
}

pub(super) fn too_long() -> ApiError {
    let message = format!(
        "This model's maximum context length is {CONTEXT_TOKENS} tokens. However, your messages leave no room for an \
         answer. Please shorten the messages."
    );
    ApiError::at(Code::ContextLengthExceeded, "messages", message)
}
