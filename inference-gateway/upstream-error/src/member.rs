//! Members of a request that a server refuses and that the request can do without.

/// A member, or a form of one, that a server may refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedMember {
    /// A whole answer: the server only streams, always or for a limit of this size.
    WholeAnswer,
    /// Ids of calls other than nine letters and digits.
    CallIds,
    /// The name of the output limit.
    LimitName,
    StreamOptions,
    ParallelToolCalls,
    CacheSalt,
    CacheKey,
    Store,
    /// The request for encrypted reasoning.
    Include,
}

/// Members that a server refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedMembers(u16);

impl RefusedMembers {
    pub const fn contains(self, member: RefusedMember) -> bool {
        self.0 & (1 << member as u16) != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[must_use]
    pub const fn with(self, member: RefusedMember) -> Self {
        Self(self.0 | 1 << member as u16)
    }

    pub const fn bits(self) -> u16 {
        self.0
    }

    pub const fn of_bits(bits: u16) -> Self {
        Self(bits)
    }
}

/// Words of servers that accept the request only as a stream.
const STREAMS_ALONE: [&str; 6] = [
    "must have stream=true",       // Fireworks
    "only support stream mode",    // DashScope
    "for non-streaming calls",     // DashScope, with thinking
    "only supports streaming",     // several
    "only available in streaming", // several
    "streaming is required",       // Anthropic's SDK, proxies
];
/// Words that demand another form of a call's id.
const NINE_CHARACTERS: &str = "with a length of 9"; // Mistral
/// Words for encrypted reasoning that a model does not have.
const NOT_ENCRYPTED: [&str; 2] = ["encrypted content is not supported", "reasoning.encrypted_content"]; // OpenAI

/// Names of members, in the order in which they are searched.
const NAMES: [(&str, RefusedMember); 7] = [
    ("stream_options", RefusedMember::StreamOptions),
    ("parallel_tool_calls", RefusedMember::ParallelToolCalls),
    ("cache_salt", RefusedMember::CacheSalt),
    ("prompt_cache_key", RefusedMember::CacheKey),
    ("max_completion_tokens", RefusedMember::LimitName),
    ("max_tokens", RefusedMember::LimitName),
    ("store", RefusedMember::Store),
];
/// Words that servers also use about a member's value. For a limit, a known name with a refused value is more likely
/// than an unknown name.
const OF_VALUES: [&str; 4] = ["unexpected", "invalid argument", "not allowed", "is not available"];
/// Words with which servers refuse an unknown member.
const REFUSALS: [&str; 14] = [
    "unsupported",           // OpenAI's newer models
    "not supported",         // OpenAI's newer models, Groq
    "unrecognized",          // OpenAI, Azure
    "unknown",               // Cohere, proxies
    "extra inputs",          // FastAPI
    "extra_forbidden",       // FastAPI
    "not permitted",         // FastAPI, Cerebras
    "not allowed",           // several
    "additional properties", // schemas
    "additionalproperties",  // schemas
    "unexpected",            // several
    "does not support",      // several
    "invalid argument",      // several
    "is not available",      // several
];

impl RefusedMember {
    /// Finds the member that this error refuses, wherever the body names it.
    pub fn find(body: &[u8], status: u16) -> Option<Self> {
        if !matches!(status, 400 | 404 | 422 | 500..) {
            return None;
        }
        let text = String::from_utf8_lossy(body).to_lowercase();
        if STREAMS_ALONE.iter().any(|words| text.contains(words)) {
            return Some(Self::WholeAnswer);
        }
        if text.contains(NINE_CHARACTERS) {
            return Some(Self::CallIds);
        }
        let refusals: Vec<&str> = REFUSALS.into_iter().filter(|words| text.contains(words)).collect();
        let refuses = |member: Self| match member {
            Self::LimitName => status < 500 && refusals.iter().any(|words| !OF_VALUES.contains(words)),
            // A failing server may quote the whole request.
            Self::CacheSalt | Self::CacheKey | Self::Store => status < 500 && !refusals.is_empty(),
            Self::WholeAnswer
            | Self::CallIds
            | Self::StreamOptions
            | Self::ParallelToolCalls
            | Self::Include => !refusals.is_empty(),
        };
        let named = NAMES.iter().find(|(name, member)| refuses(*member) && names(&text, name));
        let is_encrypted = || NOT_ENCRYPTED.iter().any(|words| text.contains(words));
        named.map(|(_, member)| *member).or_else(|| is_encrypted().then_some(Self::Include))
    }
}

/// Returns whether a text contains this name as a whole word.
fn names(text: &str, name: &str) -> bool {
    let is_of_name =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    text.match_indices(name).any(|(at, _)| {
        let bytes = text.as_bytes();
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        !is_of_name(before) && !is_of_name(bytes.get(at + name.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_member_is_found_in_every_servers_words() {
        for (body, found) in [
            (
                r#"{"error":{"message":"Unrecognized request argument supplied: stream_options"}}"#,
                RefusedMember::StreamOptions,
            ),
            (
                r#"{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}"#,
                RefusedMember::StreamOptions,
            ),
            (
                r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","code":"unsupported_parameter"}}"#,
                RefusedMember::LimitName,
            ),
            (
                r#"{"error":"property 'parallel_tool_calls' is unsupported"}"#,
                RefusedMember::ParallelToolCalls,
            ),
            (r#"{"error":{"message":"Unknown parameter: 'prompt_cache_key'."}}"#, RefusedMember::CacheKey),
            (r#"{"message":"store: not supported"}"#, RefusedMember::Store),
            (
                r#"{"error":{"message":"Requests with max_tokens > 4096 must have stream=true"}}"#,
                RefusedMember::WholeAnswer,
            ),
            (
                r#"{"message":"parameter.enable_thinking must be set to false for non-streaming calls"}"#,
                RefusedMember::WholeAnswer,
            ),
            (
                r#"{"message":"Tool call id was toolu_01 but must be a-z, A-Z, 0-9, with a length of 9."}"#,
                RefusedMember::CallIds,
            ),
            (
                r#"{"error":{"message":"Encrypted content is not supported with this model."}}"#,
                RefusedMember::Include,
            ),
        ] {
            assert_eq!(RefusedMember::find(body.as_bytes(), 400), Some(found), "{body}");
            assert_eq!(RefusedMember::find(body.as_bytes(), 429), None, "{body}");
        }
    }

    #[test]
    fn other_errors_refuse_no_member() {
        for body in [
            "",
            r#"{"error":{"message":"max_tokens is too large: 131072"}}"#,
            r#"{"error":{"message":"Unknown model: the app store's"}}"#.replace("store's", "restored").as_str(),
            r#"{"error":{"message":"Unsupported value: 'temperature'"}}"#,
            r#"{"error":{"message":"max_tokens: unexpected value 200000"}}"#,
            r#"{"error":{"message":"max_completion_tokens of 200000 is not allowed"}}"#,
            r#"{"error":{"message":"my_stream_options_x is unknown"}}"#,
        ] {
            assert_eq!(RefusedMember::find(body.as_bytes(), 400), None, "{body}");
        }
        for member in ["max_tokens", "store", "cache_salt"] {
            let quoted = format!("an unknown failure at {{{member}: 9}}");
            assert_eq!(RefusedMember::find(quoted.as_bytes(), 500), None, "{quoted}");
        }
        let both = RefusedMembers::default().with(RefusedMember::Store).with(RefusedMember::WholeAnswer);
        assert!(both.contains(RefusedMember::Store) && !both.contains(RefusedMember::CallIds));
        assert_eq!(RefusedMembers::of_bits(both.bits()), both);
    }
}
