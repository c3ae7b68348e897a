//! Chat requests: the body, checked and turned into a request to the engine.
//!
//! The gateway has checked the bounds of all fields. A number out of bounds is taken as the nearest within.

use std::collections::BTreeMap;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use shared::error::{ApiError, Code};

use super::{
    stream::{Form, UsageReports},
    too_long, unsupported_schema,
};
use crate::{
    engine::{Engine, Request},
    grammar::{MAX_SCHEMA_BYTES, OutputFormat},
    prompt::{self, Content, Message, Prompt, TooLong, Tool},
    sampler::Sampling,
};

/// Temperature where a request has none: a model this small is right most often with its likeliest tokens.
const DEFAULT_TEMPERATURE: f32 = 0.0;
/// Stop strings of a request, as in the OpenAI API.
const MAX_STOPS: usize = 4;
/// Choices of a request: more would hold more memory than a demo should.
const MAX_CHOICES: u32 = 8;
/// Likeliest tokens beside each token, as in the OpenAI API.
const MAX_TOP_LOGPROBS: usize = 20;

/// Fields that are read. All others are ignored, as is `reasoning_effort`: this model does not reason.
#[derive(Deserialize)]
struct ChatBody {
    messages: Vec<Message>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<ToolChoice>,
    parallel_tool_calls: Option<bool>,
    response_format: Option<ResponseFormat>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<u32>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    seed: Option<i64>,
    frequency_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    logit_bias: Option<BTreeMap<u32, f32>>,
    stop: Option<Stop>,
    logprobs: Option<bool>,
    top_logprobs: Option<usize>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
    #[serde(default)]
    continuous_usage_stats: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Stop {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ToolChoice {
    Mode(ToolChoiceMode),
    Named { function: FunctionName },
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ToolChoiceMode {
    None,
    Auto,
    Required,
}

#[derive(Deserialize)]
struct FunctionName {
    name: String,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponseFormat {
    Text,
    JsonObject,
    JsonSchema { json_schema: JsonSchema },
}

#[derive(Deserialize)]
struct JsonSchema {
    schema: Value,
}

#[derive(Deserialize)]
struct TokenizeBody {
    messages: Vec<Message>,
    tools: Option<Vec<Tool>>,
}

/// Reads a chat request: the request to the engine, and the form of the answer.
pub(super) fn chat(engine: &Engine, body: &[u8]) -> Result<(Request, Form), ApiError> {
    let body: ChatBody = read(body)?;
    let sampling = body.sampling(engine)?;
    let tools = match &body.tool_choice {
        // Tools that may not be called are not in the prompt.
        Some(ToolChoice::Mode(ToolChoiceMode::None)) => Vec::new(),
        _ => body.tools.unwrap_or_default(),
    };
    check(&body.messages)?;
    let prompt = prompt::encode(&engine.model().tokenizer, engine.context(), &body.messages, &tools);
    let prompt = prompt.map_err(|TooLong(tokens)| too_long(engine, tokens.map(|tokens| tokens.len())))?;
    let must_call = matches!(
        body.tool_choice,
        Some(ToolChoice::Mode(ToolChoiceMode::Required) | ToolChoice::Named { .. })
    );
    // Tools that are not in the prompt are called only where the request insists.
    let tools = if prompt.is_shortened && !must_call { Vec::new() } else { tools };
    let form = Form {
        streams: body.stream.unwrap_or(false),
        logprobs: body.logprobs.unwrap_or(false),
        usage: match &body.stream_options {
            // As in vLLM, continuous usage is nothing without `include_usage`.
            Some(options) if options.include_usage && options.continuous_usage_stats => {
                UsageReports::Everywhere
            }
            Some(options) if options.include_usage => UsageReports::AtTheEnd,
            Some(_) | None => UsageReports::Nowhere,
        },
    };
    let id_seed = (!tools.is_empty()).then(|| engine.random());
    let parallel = body.parallel_tool_calls.unwrap_or(true);
    let format = output_format(tools, body.tool_choice, parallel, body.response_format)?;
    let request = Request {
        prompt: prompt.tokens,
        choices: body.n.unwrap_or(1).clamp(1, MAX_CHOICES),
        // Clients often ask for more than any context holds, which then bounds the answer.
        max_tokens: body.max_completion_tokens.or(body.max_tokens).unwrap_or(usize::MAX).max(1),
        sampling,
        id_seed,
        top_logprobs: form.logprobs.then(|| body.top_logprobs.unwrap_or(0).min(MAX_TOP_LOGPROBS)),
        constraint: engine.grammars().compile(&format).map_err(unsupported_schema)?,
        stops: match body.stop {
            None => Vec::new(),
            Some(Stop::One(stop)) => vec![stop],
            Some(Stop::Several(stops)) => stops.into_iter().take(MAX_STOPS).collect(),
        },
    };
    Ok((request, form))
}

/// Reads a request to count tokens, and returns the tokens of its messages and tools.
pub(super) fn tokenize(engine: &Engine, body: &[u8]) -> Result<Vec<u32>, ApiError> {
    let TokenizeBody { messages, tools } = read(body)?;
    check(&messages)?;
    match prompt::encode(&engine.model().tokenizer, engine.context(), &messages, &tools.unwrap_or_default()) {
        Ok(Prompt { tokens, .. }) | Err(TooLong(Some(tokens))) => Ok(tokens),
        Err(TooLong(None)) => Err(too_long(engine, None)),
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| {
        let code = if error.is_data() { Code::InvalidType } else { Code::InvalidJson };
        ApiError::new(code, format!("The request body is not a chat request: {error}."))
    })
}

/// Checks that there are messages, of text alone.
fn check(messages: &[Message]) -> Result<(), ApiError> {
    if messages.is_empty() {
        return Err(ApiError::at(Code::InvalidValue, "messages", "There must be at least one message."));
    }
    let parts = messages.iter().filter_map(|message| match &message.content {
        Some(Content::Parts(parts)) => Some(parts),
        Some(Content::Text(_)) | None => None,
    });
    for part in parts.flatten() {
        let message = match part.r#type.as_str() {
            "text" => continue,
            "image_url" => "This model sees no images. Send text, or connect a model that sees them.",
            _ => "Only parts of the type text are read.",
        };
        return Err(ApiError::at(Code::UnsupportedValue, "messages", message));
    }
    Ok(())
}

impl ChatBody {
    fn sampling(&self, engine: &Engine) -> Result<Sampling, ApiError> {
        let bias = self.logit_bias.iter().flatten().map(|(&token, &bias)| (token, bias)).collect::<Vec<_>>();
        let tokens = engine.model().tokenizer.len();
        if bias.iter().any(|&(token, bias)| token as usize >= tokens || bias.abs() > 100.0) {
            let message = "Each key must be a token of this model, each value between -100 and 100.";
            return Err(ApiError::at(Code::InvalidValue, "logit_bias", message));
        }
        Ok(Sampling {
            temperature: self.temperature.unwrap_or(DEFAULT_TEMPERATURE).clamp(0.0, 2.0),
            top_p: self.top_p.unwrap_or(1.0).clamp(0.0, 1.0),
            frequency_penalty: self.frequency_penalty.unwrap_or(0.0).clamp(-2.0, 2.0),
            presence_penalty: self.presence_penalty.unwrap_or(0.0).clamp(-2.0, 2.0),
            seed: self.seed.map_or_else(|| engine.random(), i64::cast_unsigned),
            bias,
        })
    }
}

/// Reads the form of an answer that may call `tools`.
fn output_format(
    mut tools: Vec<Tool>,
    choice: Option<ToolChoice>,
    mut parallel: bool,
    response_format: Option<ResponseFormat>,
) -> Result<OutputFormat, ApiError> {
    let schema = match response_format {
        None | Some(ResponseFormat::Text) => None,
        Some(ResponseFormat::JsonObject) => Some(json!({"type": "object"})),
        Some(ResponseFormat::JsonSchema { json_schema }) => Some(json_schema.schema),
    };
    let required = match choice {
        None | Some(ToolChoice::Mode(ToolChoiceMode::None | ToolChoiceMode::Auto)) => false,
        Some(ToolChoice::Mode(ToolChoiceMode::Required)) => true,
        Some(ToolChoice::Named { function }) => {
            tools.retain(|tool| tool.function.name == function.name);
            tools.truncate(1);
            parallel = false;
            true
        }
    };
    if required && tools.is_empty() {
        let message = "A tool call is required, but there is no such tool.";
        return Err(ApiError::at(Code::InvalidValue, "tool_choice", message));
    }
    let schemas = tools.iter().filter_map(|tool| tool.function.parameters.as_ref()).chain(&schema);
    let names = tools.iter().map(|tool| tool.function.name.len());
    if names.chain(schemas.map(|schema| schema.to_string().len())).sum::<usize>() > MAX_SCHEMA_BYTES {
        let message = format!("The schemas of a request may take {MAX_SCHEMA_BYTES} bytes.");
        return Err(ApiError::at(Code::InvalidValue, "tools", message));
    }
    Ok(OutputFormat { tools, required, parallel, schema })
}
