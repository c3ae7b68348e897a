//! Chat requests. They are parsed only as far as necessary, since prompts may be long and benchmarks use this upstream
//! too.

use std::borrow::Cow;

use memchr::memmem;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::upstream::{conversation::script_of, script::Script};

/// Members of a request that the upstream uses.
#[derive(Deserialize)]
pub(crate) struct Asked<'a> {
    /// Model, under the upstream's own name for it.
    #[serde(borrow)]
    pub model: Cow<'a, str>,
    /// Messages, unparsed.
    #[serde(borrow)]
    pub messages: &'a RawValue,
    /// Whether the answer is streamed.
    #[serde(default)]
    pub stream: bool,
    #[serde(default)]
    pub stream_options: StreamOptions,
    /// Whether every chunk reports the timings so far, as llama.cpp's server does.
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

#[derive(Clone, Copy, Default, Deserialize)]
pub(crate) struct StreamOptions {
    /// Whether a separate chunk at the end reports the usage.
    #[serde(default)]
    pub include_usage: bool,
    /// Whether every chunk reports the usage so far.
    #[serde(default)]
    pub continuous_usage_stats: bool,
}

impl Asked<'_> {
    /// Returns the script of the last user message that has one, for the current round of tool calls.
    pub(crate) fn script(&self) -> Option<Script> {
        memmem::find(self.messages.get().as_bytes(), br#"{\"script\":"#)?;
        let messages: Vec<Value> = serde_json::from_str(self.messages.get()).ok()?;
        script_of(&messages, |message| message["role"] == "tool")
    }

    pub(crate) fn choices(&self) -> u64 {
        self.n.unwrap_or(1)
    }

    /// Returns the script's refusal, in its server's words, if the prompt and the largest completion together exceed
    /// the context.
    pub(crate) fn too_long(&self, script: &Script) -> Option<String> {
        let (context, prompt) = (script.context?, self.prompt_tokens(script));
        let most = self.most().unwrap_or(1);
        (prompt + most > context).then(|| script.too_long.words(context, prompt, most))
    }

    fn most(&self) -> Option<u64> {
        self.max_tokens.or(self.max_completion_tokens)
    }

    /// Returns the salt that separates the caches of different users.
    pub(crate) fn cache_salt(&self) -> &str {
        self.cache_salt.as_deref().unwrap_or_default()
    }

    /// Returns the number of alternatives to report for each token of text; `None` if no probabilities were requested.
    pub(crate) fn alternatives(&self) -> Option<u64> {
        (self.logprobs == Some(true)).then(|| self.top_logprobs.unwrap_or(0))
    }

    /// Returns the number of tokens in each choice, and whether the request's limit cut the choice short.
    pub(crate) fn lengths(&self, script: &Script) -> Vec<(u64, bool)> {
        let room = script.context.map(|context| context.saturating_sub(self.prompt_tokens(script)));
        let most = self.most().or(room).filter(|_| !script.ignores_max_tokens);
        let one = |choice| {
            let own = usize::try_from(choice).ok().and_then(|choice| script.lengths.get(choice));
            let wanted = own.map_or(script.length(), |own| script.length().min(*own));
            match most {
                Some(most) if most < wanted => (most, true),
                _ => (wanted, false),
            }
        };
        let choices = if script.style.one_choice { 1 } else { self.choices() };
        (0..choices).map(one).collect()
    }

    pub(crate) fn prompt_tokens(&self, script: &Script) -> u64 {
        script.prompt_tokens.unwrap_or(self.messages.get().len() as u64 / 4)
    }
}
