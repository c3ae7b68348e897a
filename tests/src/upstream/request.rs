//! What a chat request asks for, read no further than needed: prompts may be long, and this is also a benchmark's end.

use std::borrow::Cow;

use memchr::memmem;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::script::Script;

/// The members that matter here.
#[derive(Deserialize)]
pub(super) struct Asked<'a> {
    /// The model, by the name it has here.
    #[serde(borrow)]
    pub model: Cow<'a, str>,
    /// The prompt, unparsed.
    #[serde(borrow)]
    pub messages: &'a RawValue,
    /// Whether to stream.
    #[serde(default)]
    pub stream: bool,
    /// How to stream.
    #[serde(default)]
    pub stream_options: StreamOptions,
    /// Say the timings so far in every chunk, as llama.cpp's server does.
    #[serde(default)]
    pub timings_per_token: bool,
    #[serde(borrow, default)]
    cache_salt: Option<Cow<'a, str>>,
    #[serde(default)]
    max_tokens: Option<u64>,
    #[serde(default)]
    max_completion_tokens: Option<u64>,
    #[serde(default)]
    n: Option<u64>,
    #[serde(default)]
    logprobs: Option<bool>,
    #[serde(default)]
    top_logprobs: Option<u64>,
}

/// How to stream.
#[derive(Clone, Copy, Default, Deserialize)]
pub(super) struct StreamOptions {
    /// Say the usage in a chunk of its own at the end.
    #[serde(default)]
    pub include_usage: bool,
    /// Say the usage so far in every chunk.
    #[serde(default)]
    pub continuous_usage_stats: bool,
}

impl Asked<'_> {
    /// The script in the last user message, if there is one, as far as it has come.
    pub(super) fn script(&self) -> Option<Script> {
        memmem::find(self.messages.get().as_bytes(), br#"{\"script\":"#)?;
        let messages: Vec<Value> = serde_json::from_str(self.messages.get()).ok()?;
        let last = messages.iter().rposition(|message| message["role"] == "user")?;
        let mut script = match &messages[last]["content"] {
            Value::String(text) => Script::in_message(text),
            Value::Array(parts) => parts.iter().find_map(|part| Script::in_message(part["text"].as_str()?)),
            _ => None,
        }?;
        let answered = messages[last..].iter().any(|message| message["role"] == "tool");
        match script.then.take() {
            Some(then) if answered => Some(*then),
            _ => Some(script),
        }
    }

    /// Answers that are wanted.
    pub(super) fn choices(&self) -> u64 {
        self.n.unwrap_or(1)
    }

    /// Whether the prompt, with what it may generate, fits the script's context.
    pub(super) fn fits(&self, script: &Script) -> bool {
        script.context.is_none_or(|context| self.prompt_tokens(script) + self.most().unwrap_or(1) <= context)
    }

    fn most(&self) -> Option<u64> {
        self.max_tokens.or(self.max_completion_tokens)
    }

    /// What keeps part of the cache apart.
    pub(super) fn cache_salt(&self) -> &str {
        self.cache_salt.as_deref().unwrap_or_default()
    }

    /// How many alternatives are to be told of each token of text; `None` where no probabilities are wanted.
    pub(super) fn alternatives(&self) -> Option<u64> {
        (self.logprobs == Some(true)).then(|| self.top_logprobs.unwrap_or(0))
    }

    /// Tokens of each choice, and whether that is fewer than the script would have.
    pub(super) fn length(&self, script: &Script) -> (u64, bool) {
        let room = script.context.map(|context| context.saturating_sub(self.prompt_tokens(script)));
        let most = self.most().or(room).filter(|_| !script.ignores_max_tokens);
        match most {
            Some(most) if most < script.length() => (most, true),
            _ => (script.length(), false),
        }
    }

    /// Tokens of the prompt.
    pub(super) fn prompt_tokens(&self, script: &Script) -> u64 {
        script.prompt_tokens.unwrap_or(self.messages.get().len() as u64 / 4)
    }
}
