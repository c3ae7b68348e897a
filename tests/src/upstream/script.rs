//! What a scripted answer does, told by the request itself.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// How the upstream answers one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about an upstream")]
pub struct Script {
    /// Names the request in the upstream's records.
    pub tag: String,
    /// What the prompt counts as; `None` counts four bytes of messages a token.
    pub prompt_tokens: Option<u64>,
    /// Of the prompt's tokens, those that were cached.
    pub cached_tokens: u64,
    /// Counts as cached what this upstream has read before instead.
    pub caches: bool,
    /// Tokens of prompt and output together; what does not fit is refused as vLLM does.
    pub context: Option<u64>,
    /// Text tokens that each choice generates, unless `max_tokens` ends it earlier.
    pub completion_tokens: u64,
    /// The first so many of them are reasoning.
    pub reasoning_tokens: u64,
    /// Reasoning is generated and counted, but not sent.
    pub hidden_reasoning: bool,
    /// Tokens of text that each event of a stream brings; 0 is one.
    pub event_tokens: u64,
    /// Said instead of the usual words, eight characters a token; `completion_tokens` then follows from it.
    pub says: String,
    /// Says its text as a refusal.
    pub refuses: bool,
    /// Tools that each choice calls after its text; each call is three tokens.
    pub tool_calls: u64,
    /// What it does instead once a tool has answered the last user message.
    pub then: Option<Box<Script>>,
    /// Bytes that the arguments of each call have more; all of them come in one event, and count as a token for four.
    pub tool_bytes: u64,
    /// Mebibytes of blanks within a whole answer, after its first brace.
    pub padding_mib: usize,
    /// Generates to the end whatever `max_tokens` says.
    pub ignores_max_tokens: bool,
    /// Milliseconds before the response's head.
    pub head_after_ms: u64,
    /// Milliseconds between two tokens of a stream.
    pub pace_ms: u64,
    /// Said instead of the true finish reason.
    pub finish_reason: Option<String>,
    /// What is said of the usage.
    pub told: Told,
    /// What goes wrong.
    pub fault: Fault,
    /// How many requests of this tag it goes wrong for, the first ones; 0 is all of them.
    pub faults: u64,
    /// Habits in which servers differ.
    pub style: Style,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            tag: String::new(),
            prompt_tokens: None,
            cached_tokens: 0,
            caches: false,
            context: None,
            completion_tokens: 5,
            reasoning_tokens: 0,
            hidden_reasoning: false,
            event_tokens: 0,
            says: String::new(),
            refuses: false,
            tool_calls: 0,
            then: None,
            tool_bytes: 0,
            padding_mib: 0,
            ignores_max_tokens: false,
            head_after_ms: 0,
            pace_ms: 0,
            finish_reason: None,
            told: Told::Truth,
            fault: Fault::None,
            faults: 0,
            style: Style::default(),
        }
    }
}

/// What is said of the usage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// What was generated.
    Truth,
    /// Nothing at all.
    Nothing,
    /// This instead.
    Lie(Usage),
}

/// Tokens as an upstream reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Of the prompt.
    pub prompt: u64,
    /// Of those, the cached ones.
    pub cached: u64,
    /// Generated, over all choices.
    pub completion: u64,
}

/// What goes wrong. `after` counts tokens of each choice; a whole answer breaks in its middle wherever a stream would
/// break after some token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Nothing.
    None,
    /// An error status instead of an answer.
    Error {
        /// The status.
        status: u16,
        /// How its body looks.
        shape: Shape,
    },
    /// The connection is cut before the response's head.
    CutBeforeHead,
    /// The response's head never comes.
    StallBeforeHead,
    /// Nothing comes any more; the connection stays open.
    Stall {
        /// Tokens before.
        after: u64,
    },
    /// The connection is cut.
    Cut {
        /// Tokens before.
        after: u64,
    },
    /// The stream ends in good order but for its finish reason, usage and `[DONE]`.
    End {
        /// Tokens before.
        after: u64,
    },
    /// An error event, then `[DONE]`.
    ErrorEvent {
        /// Tokens before.
        after: u64,
        /// How the error looks.
        shape: Shape,
    },
    /// An event that is not JSON, then silence; a whole answer that is not JSON.
    Nonsense {
        /// Tokens before.
        after: u64,
    },
    /// The connection is cut after the finish reason.
    CutBeforeUsage,
    /// Everything but a finish reason; it is null to the end.
    NoFinishReason,
    /// Everything but `[DONE]`.
    NoDone,
    /// Everything but `[DONE]`, for which the connection stays open.
    StallBeforeDone,
}

impl Fault {
    /// After how many tokens of a choice it happens, where it happens among tokens.
    pub const fn after(self) -> Option<u64> {
        match self {
            Self::Stall { after }
            | Self::Cut { after }
            | Self::End { after }
            | Self::ErrorEvent { after, .. }
            | Self::Nonsense { after } => Some(after),
            Self::None
            | Self::Error { .. }
            | Self::CutBeforeHead
            | Self::StallBeforeHead
            | Self::CutBeforeUsage
            | Self::NoFinishReason
            | Self::NoDone
            | Self::StallBeforeDone => None,
        }
    }
}

/// How the errors of model servers look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// `{"error":{message,type,param,code}}`, as vLLM.
    Nested,
    /// The members without `error` around them, as SGLang.
    Flat,
    /// A prompt that is too long, as llama.cpp's server says it.
    TooLong,
    /// `{"error":"…"}`, as Text Generation Inference.
    Text,
    /// `{"detail":"…"}`, as FastAPI.
    Detail,
    /// As vLLM, with words that name a host and a credential whatever the status.
    Telling,
    /// No JSON at all.
    Html,
}

impl Shape {
    /// The error's body. Unless it is about the request it names what clients must never be told: a host inside.
    pub fn body(self, status: u16) -> String {
        let message = match status {
            400 | 422 => "the scripted upstream refuses this request".to_owned(),
            _ => format!("scripted failure {status} at worker-7.internal:9999"),
        };
        match self {
            Self::Nested => json!({"error": {"message": message, "type": "BadRequestError", "param": null, "code": status}}).to_string(),
            Self::Flat => json!({"object": "error", "message": message, "type": "BadRequestError", "param": null, "code": status}).to_string(),
            Self::TooLong => json!({"error": {"code": status, "message": "the request exceeds the available context size",
                "type": "exceed_context_size_error", "n_prompt_tokens": 5000, "n_ctx": 4096}}).to_string(),
            Self::Text => json!({"error": message, "error_type": "validation"}).to_string(),
            Self::Detail => json!({ "detail": message }).to_string(),
            Self::Telling => json!({"error": {"message": "bad key sk-SECRET123456 at http://10.0.0.5:8000/v1", "code": status}}).to_string(),
            Self::Html => format!("<html><body>{message}</body></html>"),
        }
    }
}

/// Habits in which servers differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "servers have these habits independently of each other")]
pub struct Style {
    /// Leaves usage out of ordinary chunks even when asked for `continuous_usage_stats`.
    pub usage_at_end_only: bool,
    /// Says timings in every chunk where it is asked to, as llama.cpp's server, and usage in the last one alone.
    pub timings: bool,
    /// Repeats a call's id and name with every piece, as llama-cpp-python.
    pub repeats_calls: bool,
    /// The ids of its calls.
    pub call_ids: CallIds,
    /// Repeats the role in every chunk, as Ollama.
    pub role_everywhere: bool,
    /// Never says the role.
    pub no_role: bool,
    /// What it calls reasoning.
    pub reasoning: ReasoningField,
    /// Puts the last token on the finish chunk, as vLLM may.
    pub text_on_finish: bool,
    /// Reports reasoning beside `completion_tokens`, so that `total_tokens` is more than the sum, as xAI.
    pub reasoning_beside: bool,
    /// Leaves `prompt_tokens_details` out.
    pub no_cached_tokens: bool,
    /// Sends a comment before every token.
    pub comments: bool,
    /// Breaks lines between the members of probabilities.
    pub lines: bool,
    /// Ends its lines with carriage returns too.
    pub crlf: bool,
}

/// The ids that a server gives to calls of tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallIds {
    /// One for each.
    #[default]
    Given,
    /// `null`.
    Null,
    /// No such member.
    Missing,
    /// An empty text, as Gemini.
    Empty,
}

impl CallIds {
    /// The member of a call, with the comma after it.
    pub(super) fn member(self, call: u64) -> String {
        match self {
            Self::Given => format!(r#""id":"call_{call}","#),
            Self::Null => r#""id":null,"#.into(),
            Self::Missing => String::new(),
            Self::Empty => r#""id":"","#.into(),
        }
    }
}

/// What a server calls reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningField {
    /// As SGLang and llama.cpp's server.
    #[default]
    ReasoningContent,
    /// As vLLM and Ollama.
    Reasoning,
}

impl ReasoningField {
    /// The member's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReasoningContent => "reasoning_content",
            Self::Reasoning => "reasoning",
        }
    }
}

/// Characters of a token where a script tells the text.
const PIECE: usize = 8;

/// Tokens of one tool call: its name, and its arguments in two pieces.
pub(super) const TOKENS_PER_CALL: u64 = 3;

/// One token of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// The reasoning's so-and-so-many-th.
    Reasoning(u64),
    /// The text's so-and-so-many-th.
    Text(u64),
    /// A piece of a tool call.
    Tool {
        /// Which call.
        call: u64,
        /// 0 is its name, the others its arguments.
        part: u64,
    },
}

impl Script {
    /// A script for a prompt and a completion of so many tokens.
    pub fn tokens(prompt: u64, completion: u64) -> Self {
        Self { prompt_tokens: Some(prompt), completion_tokens: completion, ..Self::default() }
    }

    /// The same, going wrong.
    #[must_use]
    pub fn fault(self, fault: Fault) -> Self {
        Self { fault, ..self }
    }

    /// The same, with so many milliseconds between two tokens.
    #[must_use]
    pub fn pace(self, pace_ms: u64) -> Self {
        Self { pace_ms, ..self }
    }

    /// The user message that makes the upstream do this.
    pub fn message(&self) -> String {
        let (mut members, default) = (json!(self), json!(Self::default()));
        if let Value::Object(members) = &mut members {
            members.retain(|name, value| default.get(name) != Some(value));
        }
        json!({ "script": members }).to_string()
    }

    /// The script in a user message, if there is one.
    pub fn in_message(text: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Holder {
            script: Script,
        }
        let start = text.find("{\"script\":")?;
        let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Holder>();
        match values.next()? {
            Ok(holder) => Some(holder.script.measured()),
            Err(e) => panic!("a script cannot be read: {e}: {text}"),
        }
    }

    /// With as many tokens as it takes to say what is to be said.
    fn measured(mut self) -> Self {
        if !self.says.is_empty() {
            let pieces = self.says.chars().count().div_ceil(PIECE) as u64;
            self.completion_tokens = self.reasoning_tokens + pieces;
        }
        self.then = self.then.map(|then| Box::new(then.measured()));
        self
    }

    /// The member that its text is said as.
    pub(super) const fn text_field(&self) -> &'static str {
        if self.refuses { "refusal" } else { "content" }
    }

    /// The text's so-and-so-many-th token.
    pub(super) fn word(&self, index: u64) -> Cow<'_, str> {
        if self.says.is_empty() {
            return word(index).into();
        }
        let before = usize::try_from(index).unwrap() * PIECE;
        self.says.chars().skip(before).take(PIECE).collect()
    }

    /// The words of the event that ends with the text's so-and-so-many-th token; `None` where the event goes on.
    pub(super) fn event(&self, index: u64) -> Option<String> {
        let tokens = self.event_tokens.max(1);
        let last = self.completion_tokens.saturating_sub(self.reasoning_tokens + 1);
        let begins = index - index % tokens;
        let ends = index + 1 == begins + tokens || index >= last;
        ends.then(|| (begins..=index).map(|index| self.word(index)).collect())
    }

    /// The text's first so many tokens.
    pub(super) fn words(&self, tokens: u64) -> String {
        (0..tokens).map(|index| self.word(index)).collect()
    }

    /// Tokens that one counts as: those of a tool call have weight where its arguments are long.
    pub(super) fn weight(&self, token: Token) -> u64 {
        match token {
            Token::Tool { part: 2, .. } => 1 + self.tool_bytes / 4,
            Token::Reasoning(_) | Token::Text(_) | Token::Tool { .. } => 1,
        }
    }

    /// Tokens each choice would generate.
    pub fn length(&self) -> u64 {
        self.completion_tokens + self.tool_calls * TOKENS_PER_CALL
    }

    /// The so-and-so-many-th of them.
    pub fn token(&self, index: u64) -> Token {
        if index < self.reasoning_tokens.min(self.completion_tokens) {
            Token::Reasoning(index)
        } else if index < self.completion_tokens {
            Token::Text(index - self.reasoning_tokens)
        } else {
            let piece = index - self.completion_tokens;
            Token::Tool { call: piece / TOKENS_PER_CALL, part: piece % TOKENS_PER_CALL }
        }
    }
}

const WORDS: [&str; 8] = [" the", " quick", " brown", " fox", " jumps", " over", " lazy", " dogs"];

/// The text of a token.
pub(super) fn word(index: u64) -> &'static str {
    WORDS[usize::try_from(index % 8).unwrap_or_default()]
}

/// The text of so many tokens.
pub fn text(tokens: u64) -> String {
    (0..tokens).map(word).collect()
}
