//! What a client asks: the body as it came, checked and turned into a job for the engine.

mod demand;
mod message;
mod quoted;

use std::collections::BTreeMap;

use minijinja::{Value, value::Serde};
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};

use self::message::Message;
use super::{
    error::ApiError,
    stream::{Form, UsageReports},
};
use crate::{
    engine::{Engine, Job},
    grammar::{Constraint, Demand, Thought},
    prompt::Conversation,
    sampler::Sampling,
};

/// Where a client leaves it to the model: a model this small is right most often with its likeliest words.
const DEFAULT_TEMPERATURE: f32 = 0.0;
/// As the OpenAI API has it.
const MAX_STOPS: usize = 4;
/// More choices would hold more memory than a demo should.
const MAX_CHOICES: usize = 8;
/// A prompt with more bytes than this for each token of the context fills it many times over, whatever it says; counting its
/// tokens would only take memory.
const MAX_BYTES_PER_TOKEN: usize = 128;
/// As the OpenAI API has it.
const MAX_TOP_LOGPROBS: usize = 20;

/// The fields that this server knows; it ignores all others.
#[derive(Deserialize)]
struct ChatBody {
    messages: Vec<Message>,
    tools: Option<Vec<serde_json::Value>>,
    tool_choice: Option<serde_json::Value>,
    parallel_tool_calls: Option<bool>,
    response_format: Option<serde_json::Value>,
    reasoning_effort: Option<String>,
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct StreamOptions {
    include_usage: bool,
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
    tools: Option<Vec<serde_json::Value>>,
    reasoning_effort: Option<String>,
}

/// Reads a chat request: what the engine has to do, and in what form the client wants the answer.
pub(crate) fn chat(engine: &Engine, body: &[u8]) -> Result<(Job, Form), ApiError> {
    let body: ChatBody = read(body)?;
    let demand = body.demand(engine)?;
    let tools = body.offered_tools();
    let job = Job {
        choices: within("n", body.n, 1..=MAX_CHOICES)?.unwrap_or(1),
        max_tokens: body.max_tokens()?,
        top_logprobs: body.top_logprobs()?,
        sampling: body.sampling(engine)?,
        tool_seed: tools.is_some().then(|| engine.random()),
        stops: stops(body.stop)?,
        prompt: Vec::new(),
        in_thought: false,
        constraint: None,
    };
    let form = Form {
        streams: body.stream.unwrap_or(false),
        logprobs: job.top_logprobs.is_some(),
        usage: body.stream_options.as_ref().map_or(UsageReports::Nowhere, StreamOptions::usage),
    };
    let prompt = tokens(engine, &body.messages, tools, body.reasoning_effort)?;
    if prompt.len() >= engine.context() {
        return Err(ApiError::too_long(Some(prompt.len()), engine.context()));
    }
    let in_thought = engine.vocabulary().opens_thought(&prompt);
    let thought = if in_thought { Thought::Begun } else { demand.thought };
    let constraint = constraint(engine, &Demand { thought, ..demand })?;
    Ok((Job { prompt, in_thought, constraint, ..job }, form))
}

/// The tokens of the prompt that these messages would make.
pub(crate) fn tokenize(engine: &Engine, body: &[u8]) -> Result<Vec<u32>, ApiError> {
    let TokenizeBody { messages, tools, reasoning_effort } = read(body)?;
    tokens(engine, &messages, tools, reasoning_effort)
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let is_json = serde_json::from_slice::<IgnoredAny>(body).is_ok();
        // A name that is wrong itself has no place of its own.
        let place = error.path().to_string().trim_end_matches(['.', '?']).to_owned();
        ApiError::unreadable(is_json, error.inner(), Some(place).filter(|place| !place.is_empty()))
    })?;
    reader.end().map_err(|error| ApiError::unreadable(false, &error, None))?;
    Ok(read)
}

fn tokens(
    engine: &Engine,
    messages: &[Message],
    tools: Option<Vec<serde_json::Value>>,
    reasoning_effort: Option<String>,
) -> Result<Vec<u32>, ApiError> {
    message::check(messages)?;
    if reasoning_effort.is_some() && !engine.template().takes_effort() {
        return Err(ApiError::unsupported("reasoning_effort", "This model takes no reasoning effort."));
    }
    let tools = tools.filter(|tools| !tools.is_empty()).map(|tools| Value::from(Serde(tools)));
    let conversation = Conversation {
        messages: quoted::messages(&Value::from(Serde(messages)), engine.vocabulary()),
        tools: tools.map(|tools| quoted::all(&tools, engine.vocabulary())),
        reasoning_effort,
    };
    let unusable = |error: &dyn std::fmt::Display| {
        ApiError::invalid("messages", format!("The messages and tools make no prompt: {error}."))
    };
    let prompt = engine.template().render(&conversation).map_err(|error| unusable(&error))?;
    if prompt.len() > engine.context().saturating_mul(MAX_BYTES_PER_TOKEN) {
        return Err(ApiError::too_long(None, engine.context()));
    }
    engine.vocabulary().encode(&prompt).map_err(|error| unusable(&error))
}

fn constraint(engine: &Engine, demand: &Demand) -> Result<Option<Constraint>, ApiError> {
    if !demand.tools.is_empty() && !engine.grammars().can_call() {
        return Err(ApiError::unsupported("tools", "This model has not learnt to call tools."));
    }
    Ok(engine.grammars().compile(demand)?)
}

impl StreamOptions {
    /// As vLLM has it, continuous usage is a refinement: it is nothing without `include_usage`.
    fn usage(&self) -> UsageReports {
        match (self.include_usage, self.continuous_usage_stats) {
            (false, _) => UsageReports::Nowhere,
            (true, false) => UsageReports::AtTheEnd,
            (true, true) => UsageReports::Everywhere,
        }
    }
}

impl ChatBody {
    /// The tools that the prompt tells of, unless there are none or none may be called.
    fn offered_tools(&self) -> Option<Vec<serde_json::Value>> {
        let forbidden = self.tool_choice.as_ref().is_some_and(|choice| choice == "none");
        self.tools.clone().filter(|tools| !tools.is_empty() && !forbidden)
    }

    fn demand(&self, engine: &Engine) -> Result<Demand, ApiError> {
        let tools = self.tools.as_deref().unwrap_or_default();
        let demand = demand::of_tools(tools, self.tool_choice.as_ref(), self.parallel_tool_calls)?;
        let schema = demand::of_text(self.response_format.as_ref())?;
        demand::within_size(&demand, schema.as_ref())?;
        let thinks = self.reasoning_effort.is_some() || engine.template().thinks_unasked();
        let thought = if thinks { Thought::May } else { Thought::No };
        Ok(Demand { schema, thought, ..demand })
    }

    /// Clients often ask for more than any context holds; what is left of the context then bounds the answer.
    fn max_tokens(&self) -> Result<usize, ApiError> {
        let total = within("max_completion_tokens", self.max_completion_tokens, 1..=usize::MAX)?;
        let older = within("max_tokens", self.max_tokens, 1..=usize::MAX)?;
        Ok(total.or(older).unwrap_or(usize::MAX))
    }

    fn top_logprobs(&self) -> Result<Option<usize>, ApiError> {
        let count = within("top_logprobs", self.top_logprobs, 0..=MAX_TOP_LOGPROBS)?;
        Ok(self.logprobs.unwrap_or(false).then(|| count.unwrap_or(0)))
    }

    fn sampling(&self, engine: &Engine) -> Result<Sampling, ApiError> {
        let bias = self.logit_bias.iter().flatten().map(|(&token, &bias)| (token, bias)).collect::<Vec<_>>();
        if bias.iter().any(|&(token, bias)| token as usize >= engine.vocabulary().len() || bias.abs() > 100.0)
        {
            let message = "Each key must be a token of this model, each value between -100 and 100.";
            return Err(ApiError::invalid("logit_bias", message));
        }
        Ok(Sampling {
            temperature: within("temperature", self.temperature, 0.0..=2.0)?.unwrap_or(DEFAULT_TEMPERATURE),
            top_p: within("top_p", self.top_p, 0.0..=1.0)?.unwrap_or(1.0),
            frequency_penalty: within("frequency_penalty", self.frequency_penalty, -2.0..=2.0)?
                .unwrap_or(0.0),
            presence_penalty: within("presence_penalty", self.presence_penalty, -2.0..=2.0)?.unwrap_or(0.0),
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
        return Err(ApiError::invalid(
            "stop",
            format!("There may be up to {MAX_STOPS} stop strings, none empty."),
        ));
    }
    Ok(stops)
}

fn within<T: PartialOrd + std::fmt::Display>(
    param: &str,
    value: Option<T>,
    range: std::ops::RangeInclusive<T>,
) -> Result<Option<T>, ApiError> {
    match value {
        Some(value) if !range.contains(&value) => {
            let (least, most) = range.into_inner();
            Err(ApiError::invalid(param, format!("{param} must be between {least} and {most}, not {value}.")))
        }
        Some(_) | None => Ok(value),
    }
}
