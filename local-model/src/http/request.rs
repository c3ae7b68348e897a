//! Chat requests: the body, checked and turned into a request to the engine.

mod output_format;

use std::collections::BTreeMap;

use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::Value;
use shared::error::{ApiError, Code};

use super::{
    stream::{Form, UsageReports},
    too_long, unsupported_schema,
};
use crate::{
    engine::{Engine, Request},
    prompt::{self, Content, Message, Tool},
    sampler::Sampling,
};

/// Temperature where a request has none: a model this small is right most often with its likeliest tokens.
const DEFAULT_TEMPERATURE: f32 = 0.0;
/// Stop strings of a request, as in the OpenAI API.
const MAX_STOPS: usize = 4;
/// Choices of a request: more would hold more memory than a demo should.
const MAX_CHOICES: usize = 8;
/// Likeliest tokens beside each token, as in the OpenAI API.
const MAX_TOP_LOGPROBS: usize = 20;

/// Fields that are read. All others are ignored, `reasoning_effort` too: this model does not reason.
#[derive(Deserialize)]
struct ChatBody {
    messages: Vec<Message>,
    #[serde(default)]
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    response_format: Option<Value>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<usize>,
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
struct TokenizeBody {
    messages: Vec<Message>,
    tools: Option<Vec<Value>>,
}

/// Reads a chat request: the request to the engine, and the form of its answer.
pub(super) fn chat(engine: &Engine, body: &[u8]) -> Result<(Request, Form), ApiError> {
    let body: ChatBody = read(body)?;
    let tools = output_format::tools(body.tools.as_deref())?;
    // Tools that may not be called are not in the prompt.
    let is_forbidden = body.tool_choice.as_ref().is_some_and(|choice| choice == "none");
    let offered = if is_forbidden { &[] } else { tools.as_slice() };
    let prompt = encode(engine, &body.messages, offered)?;
    if prompt.len() >= engine.context() {
        return Err(too_long(engine, Some(prompt.len())));
    }
    let id_seed = (!offered.is_empty()).then(|| engine.random());
    let form = Form {
        streams: body.stream.unwrap_or(false),
        logprobs: body.logprobs.unwrap_or(false),
        // As in vLLM, continuous usage is nothing without `include_usage`.
        usage: match &body.stream_options {
            Some(asked) if asked.include_usage && asked.continuous_usage_stats => UsageReports::Everywhere,
            Some(asked) if asked.include_usage => UsageReports::AtTheEnd,
            Some(_) | None => UsageReports::Nowhere,
        },
    };
    let top_logprobs = within("top_logprobs", body.top_logprobs, 0, MAX_TOP_LOGPROBS)?;
    let total = within("max_completion_tokens", body.max_completion_tokens, 1, usize::MAX)?;
    let older = within("max_tokens", body.max_tokens, 1, usize::MAX)?;
    let request = Request {
        prompt,
        choices: within("n", body.n, 1, MAX_CHOICES)?.unwrap_or(1),
        // Clients often ask for more than any context holds, which then bounds the answer.
        max_tokens: total.or(older).unwrap_or(usize::MAX),
        sampling: body.sampling(engine)?,
        id_seed,
        top_logprobs: form.logprobs.then(|| top_logprobs.unwrap_or(0)),
        constraint: {
            let choice = body.tool_choice.as_ref();
            let format =
                output_format::read(tools, choice, body.parallel_tool_calls, body.response_format.as_ref())?;
            engine.grammars().compile(&format).map_err(unsupported_schema)?
        },
        stops: stops(body.stop)?,
    };
    Ok((request, form))
}

/// Reads a request to count tokens: those of the prompt that its messages and tools make.
pub(super) fn tokenize(engine: &Engine, body: &[u8]) -> Result<Vec<u32>, ApiError> {
    let TokenizeBody { messages, tools } = read(body)?;
    encode(engine, &messages, &output_format::tools(tools.as_deref())?)
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let unreadable = |error: &serde_json::Error| {
        let is_json = serde_json::from_slice::<IgnoredAny>(body).is_ok();
        let code = if is_json { Code::InvalidType } else { Code::InvalidJson };
        ApiError::new(code, format!("The request body is not a chat request: {error}."))
    };
    let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        // A name that is wrong itself has no place of its own.
        let place = error.path().to_string().trim_end_matches(['.', '?']).to_owned();
        ApiError { param: Some(place).filter(|place| !place.is_empty()), ..unreadable(error.inner()) }
    })?;
    reader.end().map_err(|error| unreadable(&error))?;
    Ok(read)
}

fn encode(engine: &Engine, messages: &[Message], tools: &[Tool]) -> Result<Vec<u32>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::at(Code::InvalidValue, "messages", "There must be at least one message."));
    }
    for (index, message) in messages.iter().enumerate() {
        let Some(Content::Parts(parts)) = &message.content else { continue };
        for (place, part) in parts.iter().enumerate() {
            let message = match part.r#type.as_str() {
                "text" => continue,
                "image_url" => "This model sees no images. Send text, or connect a model that sees them.",
                _ => "Only parts of the type text are read.",
            };
            let param = format!("messages[{index}].content[{place}]");
            return Err(ApiError::at(Code::UnsupportedValue, param, message));
        }
    }
    let prompt = prompt::encode(engine.tokenizer(), engine.context(), messages, tools);
    prompt.ok_or_else(|| too_long(engine, None))
}

impl ChatBody {
    fn sampling(&self, engine: &Engine) -> Result<Sampling, ApiError> {
        let bias = self.logit_bias.iter().flatten().map(|(&token, &bias)| (token, bias)).collect::<Vec<_>>();
        let tokens = engine.tokenizer().len();
        if bias.iter().any(|&(token, bias)| token as usize >= tokens || bias.abs() > 100.0) {
            let message = "Each key must be a token of this model, each value between -100 and 100.";
            return Err(ApiError::at(Code::InvalidValue, "logit_bias", message));
        }
        let penalty = |name, value| within(name, value, -2.0, 2.0).map(Option::unwrap_or_default);
        Ok(Sampling {
            temperature: within("temperature", self.temperature, 0.0, 2.0)?.unwrap_or(DEFAULT_TEMPERATURE),
            top_p: within("top_p", self.top_p, 0.0, 1.0)?.unwrap_or(1.0),
            frequency_penalty: penalty("frequency_penalty", self.frequency_penalty)?,
            presence_penalty: penalty("presence_penalty", self.presence_penalty)?,
            seed: self.seed.map_or_else(|| engine.random(), i64::cast_unsigned),
            bias,
        })
    }
}

fn stops(stop: Option<Stop>) -> Result<Vec<String>, ApiError> {
    let stops = match stop {
        None => Vec::new(),
        Some(Stop::One(stop)) => vec![stop],
        Some(Stop::Several(stops)) => stops,
    };
    if stops.len() > MAX_STOPS || stops.iter().any(String::is_empty) {
        let message = format!("There may be up to {MAX_STOPS} stop strings, none empty.");
        return Err(ApiError::at(Code::InvalidValue, "stop", message));
    }
    Ok(stops)
}

fn within<T: PartialOrd + std::fmt::Display>(
    param: &str,
    value: Option<T>,
    least: T,
    most: T,
) -> Result<Option<T>, ApiError> {
    match value {
        Some(value) if !(least..=most).contains(&value) => {
            let message = format!("{param} is {value}, which is out of its range.");
            Err(ApiError::at(Code::InvalidValue, param, message))
        }
        value => Ok(value),
    }
}
