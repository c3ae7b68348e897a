//! Scripts: descriptions of an answer, contained in the request itself.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    calls::ScriptedCall,
    faults::{fault::Fault, too_long::TooLong, vendor_error::VendorError},
    style::Style,
};

/// Description of the answer to one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate fact about an upstream")]
pub struct Script {
    /// Names the request in the upstream's records.
    pub tag: String,
    /// Name of the model in the answer; by default the requested one.
    pub answers_as: Option<String>,
    /// Number of prompt tokens; if `None`, one per four bytes of messages.
    pub prompt_tokens: Option<u64>,
    /// Number of prompt tokens that were cached.
    pub cached_tokens: u64,
    /// Whether to count as cached the prompt tokens that this upstream has read before, instead of `cached_tokens`.
    pub caches: bool,
    /// Number of tokens in the shortest prefix that is cached in the Responses and Messages APIs. Vendors document
    /// 1,024 and more.
    pub cache_minimum: u64,
    /// Context size: maximum number of prompt and output tokens together. A request that exceeds it is refused.
    pub context: Option<u64>,
    /// How such a refusal is worded.
    pub too_long: TooLong,
    /// Number of text tokens that each choice generates, unless `max_tokens` ends it earlier.
    pub completion_tokens: u64,
    /// Number of tokens in each choice, so that choices finish at different times; a choice without a number gets all
    /// of the script's tokens.
    pub lengths: Vec<u64>,
    /// Number of text tokens, counted from the first, that are reasoning.
    pub reasoning_tokens: u64,
    /// Whether reasoning is generated and counted, but not sent.
    pub hidden_reasoning: bool,
    /// Number of tokens after which a choice sends neither text nor usage until it ends: its text never completes a
    /// character, as if a bias favoured the first half of one.
    pub withheld_after: Option<u64>,
    /// Number of text tokens in each event of a stream; 0 means one.
    pub event_tokens: u64,
    /// Text of the answer, eight characters per token. It determines `completion_tokens`.
    pub says: String,
    /// Whether the text is sent as a refusal.
    pub refuses: bool,
    /// Number of tools that each choice calls after its text. Each call counts as three tokens.
    pub tool_calls: u64,
    /// The calls, used in turn; if there are none, each call asks `lookup` for `x`.
    pub calls: Vec<ScriptedCall>,
    /// Script that takes over once tools have answered a round of calls.
    pub then: Option<Box<Script>>,
    /// Additional bytes in the arguments of each call. They are sent in one event, and four bytes count as a token.
    pub tool_bytes: u64,
    /// Mebibytes of spaces in a whole answer, after its first brace.
    pub padding_mib: usize,
    /// Whether images are refused, as llama.cpp's server does without a projector.
    pub takes_no_images: bool,
    /// Status of an exact count's response; 0 for success.
    pub count_status: u16,
    /// Whether everything is generated regardless of `max_tokens`.
    pub ignores_max_tokens: bool,
    /// Delay of an exact count in milliseconds.
    pub count_after_ms: u64,
    /// Delay of the response's head in milliseconds.
    pub head_after_ms: u64,
    /// Milliseconds between the head of a whole answer and its body, which is sent in one piece.
    pub body_after_ms: u64,
    /// Milliseconds between two tokens of a stream.
    pub pace_ms: u64,
    /// Milliseconds between the last finish chunk of a stream and its usage.
    pub usage_after_ms: u64,
    /// Whether a stream is generated at its pace regardless of its reader, and stops only when the connection is
    /// closed.
    pub own_pace: bool,
    /// Finish reason to send instead of the true one.
    pub finish_reason: Option<String>,
    /// Usage to report.
    pub told: Told,
    /// Fault to cause.
    pub fault: Fault,
    /// Error to send instead of an answer, worded as the API's vendor words it.
    pub says_error: Option<VendorError>,
    /// Whether to send events of unknown types, unknown members in known events, and pings, in the Responses and
    /// Messages APIs.
    pub unknown_events: bool,
    /// Number of requests with this tag that fail, counted from the first; 0 means all.
    pub faults: u64,
    /// Peculiarities of the imitated server.
    pub style: Style,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            tag: String::new(),
            answers_as: None,
            prompt_tokens: None,
            cached_tokens: 0,
            caches: false,
            cache_minimum: 0,
            context: None,
            too_long: TooLong::Vllm,
            completion_tokens: 5,
            lengths: Vec::new(),
            reasoning_tokens: 0,
            hidden_reasoning: false,
            withheld_after: None,
            event_tokens: 0,
            says: String::new(),
            refuses: false,
            tool_calls: 0,
            calls: Vec::new(),
            then: None,
            tool_bytes: 0,
            padding_mib: 0,
            takes_no_images: false,
            count_status: 0,
            ignores_max_tokens: false,
            count_after_ms: 0,
            head_after_ms: 0,
            body_after_ms: 0,
            pace_ms: 0,
            usage_after_ms: 0,
            own_pace: false,
            finish_reason: None,
            told: Told::Truth,
            fault: Fault::None,
            says_error: None,
            unknown_events: false,
            faults: 0,
            style: Style::default(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// The true usage.
    Truth,
    /// No usage at all.
    Nothing,
    /// This usage instead of the true one.
    Lie(Usage),
    /// This usage in a stream's first chunk, and the true one from then on.
    First(Usage),
    /// Verbatim JSON: floats, texts, members of other APIs. Ordinary chunks report no usage.
    Json {
        /// Usage in a stream's first chunk, as a converter from Anthropic's API sends it.
        #[serde(default)]
        first: Option<String>,
        /// Usage at the end of a stream, and in a whole answer.
        last: String,
    },
}

impl Told {
    /// Returns verbatim usage for the end of an answer.
    pub fn json(last: &str) -> Self {
        Self::Json { first: None, last: last.to_owned() }
    }
}

/// Token counts as an upstream reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Number of prompt tokens that were cached.
    pub cached: u64,
    /// Generated tokens, over all choices.
    pub completion: u64,
}

/// Number of characters in a token, if a script gives the text.
const PIECE: usize = 8;

/// Number of tokens in a tool call: its name, and its arguments in two pieces.
pub(super) const TOKENS_PER_CALL: u64 = 3;

/// One token of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// The reasoning token with this index.
    Reasoning(u64),
    /// The text token with this index.
    Text(u64),
    /// A piece of a tool call.
    Tool {
        /// Index of the call.
        call: u64,
        /// Index of the piece: 0 is the name, the others are arguments.
        part: u64,
    },
}

impl Token {
    /// Returns whether both tokens belong to the same text or the same call.
    pub(super) const fn same_item(self, other: Self) -> bool {
        match (self, other) {
            (Self::Reasoning(_), Self::Reasoning(_)) | (Self::Text(_), Self::Text(_)) => true,
            (Self::Tool { call, .. }, Self::Tool { call: other, .. }) => call == other,
            (Self::Reasoning(_) | Self::Text(_) | Self::Tool { .. }, _) => false,
        }
    }
}

impl Script {
    /// Returns a script with a prompt and a completion of this many tokens.
    pub fn tokens(prompt: u64, completion: u64) -> Self {
        Self { prompt_tokens: Some(prompt), completion_tokens: completion, ..Self::default() }
    }

    /// Adds a fault.
    #[must_use]
    pub fn fault(self, fault: Fault) -> Self {
        Self { fault, ..self }
    }

    /// Returns a script with a prompt and with choices of these many tokens.
    pub fn choices(prompt: u64, lengths: &[u64]) -> Self {
        let most = lengths.iter().copied().max().unwrap_or_default();
        Self { lengths: lengths.to_vec(), ..Self::tokens(prompt, most) }
    }

    /// Returns the same script without a fault or an error, for requests after the last failure.
    #[must_use]
    pub(super) fn recovered(self) -> Self {
        Self { fault: Fault::None, says_error: None, ..self }
    }

    /// Sets the milliseconds between two tokens.
    #[must_use]
    pub fn pace(self, pace_ms: u64) -> Self {
        Self { pace_ms, ..self }
    }

    /// Returns a user message that contains this script.
    pub fn message(&self) -> String {
        let (mut members, default) = (json!(self), json!(Self::default()));
        if let Value::Object(members) = &mut members {
            members.retain(|name, value| default.get(name) != Some(value));
        }
        json!({ "script": members }).to_string()
    }

    /// Returns the script in a user message, if there is one.
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

    /// Returns the script after this many rounds of tool calls. The last script is used for all further rounds.
    #[must_use]
    pub(super) fn after_rounds(mut self, rounds: usize) -> Self {
        for _ in 0..rounds {
            match self.then.take() {
                Some(then) => self = *then,
                None => break,
            }
        }
        self
    }

    /// Sets `completion_tokens` to the length of the script's text.
    fn measured(mut self) -> Self {
        if !self.says.is_empty() {
            let pieces = self.says.chars().count().div_ceil(PIECE) as u64;
            self.completion_tokens = self.reasoning_tokens + pieces;
        }
        self.then = self.then.map(|then| Box::new(then.measured()));
        self
    }

    /// Returns the name of the member that carries the text.
    pub(super) const fn text_field(&self) -> &'static str {
        if self.refuses { "refusal" } else { "content" }
    }

    /// Returns the text token with this index.
    pub(super) fn word(&self, index: u64) -> Cow<'_, str> {
        if self.says.is_empty() {
            return word(index).into();
        }
        let before = usize::try_from(index).unwrap() * PIECE;
        self.says.chars().skip(before).take(PIECE).collect()
    }

    /// Returns the text of the event that ends with this text token in a choice of this length; `None` if the event
    /// continues after the token.
    pub(super) fn event(&self, index: u64, length: u64) -> Option<String> {
        let tokens = self.event_tokens.max(1);
        // The last event may be shorter.
        let last = self.completion_tokens.min(length).saturating_sub(self.reasoning_tokens + 1);
        let begins = index - index % tokens;
        let ends = index + 1 == begins + tokens || index >= last;
        ends.then(|| (begins..=index).map(|index| self.word(index)).collect())
    }

    /// Returns the text of the first tokens.
    pub(super) fn words(&self, tokens: u64) -> String {
        (0..tokens).map(|index| self.word(index)).collect()
    }

    /// Returns the number of tokens that this one counts as: more than one for the long arguments of a tool call.
    pub(super) fn weight(&self, token: Token) -> u64 {
        match token {
            Token::Tool { part: 2, call } => {
                // A text token has at most eight characters.
                1 + self.call(call).map_or(self.tool_bytes / 4, |call| call.arguments.len() as u64 / 8)
            }
            Token::Reasoning(_) | Token::Text(_) | Token::Tool { .. } => 1,
        }
    }

    /// Returns the number of tokens that each choice would generate.
    pub fn length(&self) -> u64 {
        self.completion_tokens + self.tool_calls * TOKENS_PER_CALL
    }

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

/// Returns the text of the token with this index.
pub(super) fn word(index: u64) -> &'static str {
    WORDS[usize::try_from(index % 8).unwrap_or_default()]
}

/// Returns the text of this many tokens.
pub fn text(tokens: u64) -> String {
    (0..tokens).map(word).collect()
}

/// Arguments of a call that the script does not specify, in the pieces in which they are sent.
const ARGUMENTS: (&str, &str) = (r#"{"q":"#, r#""x"}"#);

impl Script {
    /// Returns the call with this index, if the script specifies calls. They are used in turn.
    pub(super) fn call(&self, call: u64) -> Option<&ScriptedCall> {
        let turn = usize::try_from(call).expect("it is an index").checked_rem(self.calls.len())?;
        self.calls.get(turn)
    }

    /// Returns the name of the tool that the call with this index asks for.
    pub(super) fn called_name(&self, call: u64) -> &str {
        self.call(call).map_or("lookup", |call| &call.name)
    }

    /// Returns the arguments of a call that are sent with its token of this index: none with the name, the rest in two
    /// pieces.
    pub(super) fn arguments(&self, call: u64, part: u64) -> String {
        let (first, last) = self.call(call).map_or_else(|| self.lookup_arguments(), ScriptedCall::halves);
        match part {
            0 => String::new(),
            1 => first,
            _ => last,
        }
    }

    /// Returns the arguments of a call that the script does not specify. The last piece is as long as the script
    /// demands.
    fn lookup_arguments(&self) -> (String, String) {
        let more = "x".repeat(usize::try_from(self.tool_bytes).expect("it is a length"));
        (ARGUMENTS.0.to_owned(), format!("\"{more}{}", &ARGUMENTS.1[1..]))
    }
}
