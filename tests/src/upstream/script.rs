//! Scripts. A script is in the request itself, and describes the answer to it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    calls::ScriptedCall,
    faults::{fault::Fault, too_long::TooLong, vendor_error::VendorError},
    style::Style,
};

/// Describes the answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate fact about an upstream")]
pub struct Script {
    /// Name of the request in the upstream's records.
    pub tag: String,
    /// Name of the model that the answer contains. By default, this is the requested model.
    pub answers_as: Option<String>,
    /// Number of prompt tokens. If it is `None`, four bytes of messages count as one token.
    pub prompt_tokens: Option<u64>,
    /// Number of prompt tokens that are reported as cached.
    pub cached_tokens: u64,
    /// Whether the prompt tokens that this upstream has read before are reported as cached, instead of `cached_tokens`.
    pub caches: bool,
    /// In the Responses and Messages APIs, prefixes with fewer tokens are not cached. Vendors document 1,024 and higher
    /// numbers.
    pub cache_minimum: u64,
    /// Size of the context: the maximum number of tokens that prompt and output may have together. A request that
    /// exceeds it is refused.
    pub context: Option<u64>,
    /// The words of that refusal.
    pub too_long: TooLong,
    /// Number of text tokens that each choice generates, if `max_tokens` does not end it earlier.
    pub completion_tokens: u64,
    /// Number of tokens in each choice. With different numbers, choices finish at different times. A choice for which
    /// there is no number gets all tokens of the script.
    pub lengths: Vec<u64>,
    /// How many of the text tokens are reasoning. These come first.
    pub reasoning_tokens: u64,
    /// Whether reasoning is generated and counted, but not sent.
    pub hidden_reasoning: bool,
    /// After this number of tokens, a choice sends neither text nor usage until it ends. Its text then never completes
    /// a character, as if a bias favoured the first half of a character.
    pub withheld_after: Option<u64>,
    /// Number of text tokens that each event of a stream contains; 0 means one.
    pub event_tokens: u64,
    /// Text of the answer. Eight characters are a token, so the text decides `completion_tokens`.
    pub says: String,
    /// Whether that text is sent as a refusal.
    pub refuses: bool,
    /// Number of tools that each choice calls after its text. A call counts as three tokens.
    pub tool_calls: u64,
    /// The calls, which are used in turn. If there are none, each call asks the tool `lookup` for `x`.
    pub calls: Vec<ScriptedCall>,
    /// Script that applies after tools have answered a round of calls.
    pub then: Option<Box<Script>>,
    /// Additional bytes in the arguments of each call. They are sent in one event, and four bytes count as a token.
    pub tool_bytes: u64,
    /// Mebibytes of spaces in a whole answer, after its first brace.
    pub padding_mib: usize,
    /// Whether images are refused, as they are by llama.cpp's server without a projector.
    pub takes_no_images: bool,
    /// Status of the answer to a request for an exact count; 0 for success.
    pub count_status: u16,
    /// Whether everything is generated, whatever `max_tokens` says.
    pub ignores_max_tokens: bool,
    /// Milliseconds until a request for an exact count is answered.
    pub count_after_ms: u64,
    /// Milliseconds until the head of the response is sent.
    pub head_after_ms: u64,
    /// Milliseconds between the head of a whole answer and its body, which is sent in one piece.
    pub body_after_ms: u64,
    /// Milliseconds between two tokens of a stream.
    pub pace_ms: u64,
    /// Milliseconds between the last finish chunk of a stream and the chunk with the usage.
    pub usage_after_ms: u64,
    /// Whether a stream is generated at its pace even if nobody reads it. It then stops only when the connection is
    /// closed.
    pub own_pace: bool,
    /// Finish reason that is sent instead of the true one.
    pub finish_reason: Option<String>,
    /// Usage to report.
    pub told: Told,
    /// Fault to cause.
    pub fault: Fault,
    /// Error that is sent instead of an answer, in the words of the API's vendor.
    pub says_error: Option<VendorError>,
    /// In the Responses and Messages APIs, whether events of unknown types, unknown members in known events, and pings
    /// are sent.
    pub unknown_events: bool,
    /// How many requests with this tag fail. These come first; 0 means that all fail.
    pub faults: u64,
    /// Peculiarities of the server that is imitated.
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
    /// This usage in the first chunk of a stream, and the true usage after that.
    First(Usage),
    /// JSON that is sent as it is. It may contain floats, texts, and members of other APIs. Ordinary chunks report no
    /// usage.
    Json {
        /// Usage in the first chunk of a stream. Servers that convert from Anthropic's API send it there.
        #[serde(default)]
        first: Option<String>,
        /// Usage at the end of a stream, and in a whole answer.
        last: String,
    },
}

impl Told {
    /// Reports this JSON as the usage, at the end of an answer.
    pub fn json(last: &str) -> Self {
        Self::Json { first: None, last: last.to_owned() }
    }
}

/// Numbers of tokens, as an upstream reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Number of tokens in the prompt.
    pub prompt: u64,
    /// Number of prompt tokens that were cached.
    pub cached: u64,
    /// Number of generated tokens, in all choices together.
    pub completion: u64,
}

/// Number of characters in a token, if the script contains the text.
const PIECE: usize = 8;

/// Number of tokens in a tool call: one for its name, and two for the two pieces of its arguments.
pub(super) const TOKENS_PER_CALL: u64 = 3;

/// A token of a choice.
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
        /// Index of the piece. Piece 0 is the name; the other pieces are the arguments.
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
    /// Returns a script for a prompt and a completion with these numbers of tokens.
    pub fn tokens(prompt: u64, completion: u64) -> Self {
        Self { prompt_tokens: Some(prompt), completion_tokens: completion, ..Self::default() }
    }

    /// Adds a fault.
    #[must_use]
    pub fn fault(self, fault: Fault) -> Self {
        Self { fault, ..self }
    }

    /// Returns a script for a prompt and for choices with these numbers of tokens.
    pub fn choices(prompt: u64, lengths: &[u64]) -> Self {
        let most = lengths.iter().copied().max().unwrap_or_default();
        Self { lengths: lengths.to_vec(), ..Self::tokens(prompt, most) }
    }

    /// Returns the same script without its fault and its error, for requests that come after the last failure.
    #[must_use]
    pub(super) fn recovered(self) -> Self {
        Self { fault: Fault::None, says_error: None, ..self }
    }

    /// Sets the time between two tokens, in milliseconds.
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

    /// Returns the script after this many rounds of tool calls. After the last script, the same script is used again.
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

    /// Sets `completion_tokens` to the number of tokens in the script's text.
    fn measured(mut self) -> Self {
        if !self.says.is_empty() {
            let pieces = self.says.chars().count().div_ceil(PIECE) as u64;
            self.completion_tokens = self.reasoning_tokens + pieces;
        }
        self.then = self.then.map(|then| Box::new(then.measured()));
        self
    }

    /// Returns the name of the member that contains the text.
    pub(super) const fn text_field(&self) -> &'static str {
        if self.refuses { "refusal" } else { "content" }
    }

    /// Returns the text of the text token that has this index.
    pub(super) fn word(&self, index: u64) -> Cow<'_, str> {
        if self.says.is_empty() {
            return word(index).into();
        }
        let before = usize::try_from(index).unwrap() * PIECE;
        self.says.chars().skip(before).take(PIECE).collect()
    }

    /// Returns the text of the event that ends with this text token, in a choice of this length. Returns `None` if the
    /// event does not end with this token.
    pub(super) fn event(&self, index: u64, length: u64) -> Option<String> {
        let tokens = self.event_tokens.max(1);
        // The last event may contain fewer tokens.
        let last = self.completion_tokens.min(length).saturating_sub(self.reasoning_tokens + 1);
        let begins = index - index % tokens;
        let ends = index + 1 == begins + tokens || index >= last;
        ends.then(|| (begins..=index).map(|index| self.word(index)).collect())
    }

    /// Returns the text of this many tokens, from the first on.
    pub(super) fn words(&self, tokens: u64) -> String {
        (0..tokens).map(|index| self.word(index)).collect()
    }

    /// Returns the number of tokens that are counted for this token. Long arguments of a tool call count as several.
    pub(super) fn weight(&self, token: Token) -> u64 {
        match token {
            Token::Tool { part: 2, call } => {
                // A token of text has at most eight characters, so long arguments count as several tokens.
                1 + self.call(call).map_or(self.tool_bytes / 4, |call| call.arguments.len() as u64 / 8)
            }
            Token::Reasoning(_) | Token::Text(_) | Token::Tool { .. } => 1,
        }
    }

    /// Returns the number of tokens that each choice has if nothing ends it earlier.
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

/// Returns the text of the token that has this index.
pub(super) fn word(index: u64) -> &'static str {
    WORDS[usize::try_from(index % 8).unwrap_or_default()]
}

/// Returns the text of this many tokens, from the first on.
pub fn text(tokens: u64) -> String {
    (0..tokens).map(word).collect()
}

/// Arguments of a call for which the script contains none, in the two pieces in which they are sent.
const ARGUMENTS: (&str, &str) = (r#"{"q":"#, r#""x"}"#);

impl Script {
    /// Returns the call that has this index, if the script contains calls. They are used in turn.
    pub(super) fn call(&self, call: u64) -> Option<&ScriptedCall> {
        let turn = usize::try_from(call).expect("it is an index").checked_rem(self.calls.len())?;
        self.calls.get(turn)
    }

    /// Returns the name of the tool that is called by the call with this index.
    pub(super) fn called_name(&self, call: u64) -> &str {
        self.call(call).map_or("lookup", |call| &call.name)
    }

    /// Returns the arguments that are sent with a token of a call. `part` is the index of the token. There are none
    /// with the name; they are sent with the two following tokens.
    pub(super) fn arguments(&self, call: u64, part: u64) -> String {
        let (first, last) = self.call(call).map_or_else(|| self.lookup_arguments(), ScriptedCall::halves);
        match part {
            0 => String::new(),
            1 => first,
            _ => last,
        }
    }

    /// Returns the arguments of a call for which the script contains none. The last piece is as long as the script
    /// says.
    fn lookup_arguments(&self) -> (String, String) {
        let more = "x".repeat(usize::try_from(self.tool_bytes).expect("it is a length"));
        (ARGUMENTS.0.to_owned(), format!("\"{more}{}", &ARGUMENTS.1[1..]))
    }
}
