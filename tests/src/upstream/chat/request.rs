//! Chat requests. Only what is needed is parsed, because prompts may be long and benchmarks use this upstream too.

use std::borrow::Cow;

use memchr::memmem;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::upstream::{conversation::script_of, script::Script};

/// The members of a request that the upstream uses.
#[derive(Deserialize)]
pub(crate) struct Asked<'a> {
    /// The upstream's own name for the model.
    #[serde(borrow)]
    pub model: Cow<'a, str>,
    /// Messages, unparsed.
    #[serde(borrow)]
    pub messages: &'a RawValue,
    /// Whether the client asks for a stream.
    #[serde(default)]
    pub stream: bool,
    #[serde(default)]
    pub stream_options: StreamOptions,
    /// Whether every chunk contains the timings so far, as in llama.cpp's server.
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
    /// Whether a chunk of its own at the end reports the usage.
    #[serde(default)]
    pub include_usage: bool,
    /// Whether every chunk contains the usage so far.
    #[serde(default)]
    pub continuous_usage_stats: bool,
}

impl Asked<'_> {
    /// Returns the script in the last user message that contains one, for the present round of tool calls.
    pub(crate) fn script(&self) -> Option<Script> {
        memmem::find(self.messages.get().as_bytes(), br#"{\"script\":"#)?;
        let messages: Vec<Value> = serde_json::from_str(self.messages.get()).ok()?;
        script_of(&messages, |message| message["role"] == "tool")
    }

    pub(crate) fn choices(&self) -> u64 {
        self.n.unwrap_or(1)
    }

    /// If the prompt and the largest possible completion together exceed the context, returns a refusal in the words of
    /// the server that the script imitates.
    pub(crate) fn too_long(&self, script: &Script) -> Option<String> {
        let (context, prompt) = (script.context?, self.prompt_tokens(script));
        let most = self.most().unwrap_or(1);
        (prompt + most > context).then(|| script.too_long.words(context, prompt, most))
    }

    fn most(&self) -> Option<u64> {
        self.max_tokens.or(self.max_completion_tokens)
    }

    /// Returns a salt. Users with different salts do not share cached prompts.
    pub(crate) fn cache_salt(&self) -> &str {
        self.cache_salt.as_deref().unwrap_or_default()
    }

    /// Returns the number of alternatives that are reported for each token of text; `None` if no probabilities were
    /// requested.
    pub(crate) fn alternatives(&self) -> Option<u64> {
        (self.logprobs == Some(true)).then(|| self.top_logprobs.unwrap_or(0))
    }

    /// Returns for each choice the number of its tokens, and whether the request's limit cuts it short.
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
