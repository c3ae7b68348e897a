//! An upstream's error, and its cause.

use crate::{cleaned::cleaned, name::without_name, sizes::ContextSizes};

/// Phrases for a prompt that is too long, or that leaves too little room for the requested output. They come from the
/// sources or the documentation of servers.
const TOO_LONG: [&str; 26] = [
    "maximum context length",         // OpenAI, vLLM, Mistral, DeepSeek, llama-cpp-python
    "context length",                 // SGLang, Ollama, LM Studio
    "context window",                 // llama-cpp-python, Together
    "context size",                   // llama.cpp
    "context limit",                  // Anthropic, behind proxies
    "maximum model length",           // vLLM, for images
    "max_model_len",                  // vLLM, for a limit beyond its window
    "maximum prompt length",          // xAI
    "maximum number of tokens allow", // Gemini
    "maximum allowed length",         // SGLang's router
    "prompt is too long",             // Anthropic, TensorRT-LLM
    "max_input_length",               // Triton
    "exceed n_ctx",                   // llama-box
    "`inputs` tokens",                // Text Generation Inference
    "is too large to process",        // llama.cpp, for embeddings
    "exceeded model token limit",     // Moonshot
    "more than max tokens allowed",   // Z.ai
    "prompt exceeds max length",      // Z.ai
    "reduce the length of the mess",  // Groq
    "input length should be",         // Alibaba
    "input is too long for request",  // Bedrock
    "prompt token count of",          // Copilot
    "input token count exceeds",      // Gemini
    "exceeds the maximum input",      // several
    "input tokens exceed",            // several
    "prompt too long",                // Ollama, Fireworks
];
/// Types and codes of errors for a prompt that is too long. The last is a code of Z.ai's.
const TOO_LONG_BY_NAME: [&str; 4] =
    ["exceed_context_size_error", "context_length_exceeded", "context_window_exceeded", "1261"];
/// Types and codes of errors that the request caused, whatever their status.
const REQUEST_AT_FAULT: [&str; 4] =
    ["invalid_request_error", "exceed_context_size_error", "context_length_exceeded", "not_supported_error"];
/// Words about a part of a request that a server cannot handle, from the servers' sources. Several servers report it
/// with a 5xx status. The first match counts.
const PARTS_AT_FAULT: [(PartAtFault, &[&str]); 5] = [
    (
        PartAtFault::CallArguments,
        &[
            "Failed to parse tool call arguments", // llama.cpp
            "nvalid tool call arguments",          // Ollama, templates
        ],
    ),
    (
        PartAtFault::Images,
        &[
            "image input is not supported",     // llama.cpp
            "does not support multimodal",      // llama.cpp
            "is not a multimodal model",        // vLLM
            "At most 0 image",                  // vLLM
            "missing data required for image",  // Ollama
            "does not support image",           // Ollama, hosted providers
            "only supported by certain models", // OpenAI
            "found that support image input",   // OpenRouter
            "unknown variant `image_url`",      // DeepSeek
        ],
    ),
    (
        PartAtFault::ImageData,
        &[
            "Failed to load image",       // llama.cpp
            "Failed to download image",   // llama.cpp
            "cannot identify image file", // Pillow, in servers of Python
        ],
    ),
    (
        PartAtFault::Tools,
        &[
            "param requires --jinja flag", // llama.cpp
            "does not support tools",      // Ollama
        ],
    ),
    (
        PartAtFault::Messages,
        &[
            "raise_exception",           // the source of a template, which llama.cpp quotes
            "Jinja Exception",           // llama.cpp
            "While executing",           // llama.cpp
            "Failed to parse messages",  // llama.cpp
            "prompt with jinja templat", // LM Studio
        ],
    ),
];
/// Longest location in a body that a client may see, in bytes.
const MAX_PLACE_BYTES: usize = 200;
/// Maximum number of bytes that are read from an error, since a parsed error takes many times its size in memory. A
/// longer one is ignored.
pub const MAX_ERROR_BYTES: usize = 64 << 10;

/// An upstream's error; empty if it has no readable text. The text may quote the prompt.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UpstreamError {
    pub message: String,
    /// Member `type` of the error.
    pub kind: String,
    /// Member `code` of the error: a status or a name.
    pub code: String,
    /// Member `param` of the error: a location in the upstream's body.
    pub param: String,
    /// Sizes of the prompt and the context, if the error has members for them.
    pub sizes: Option<ContextSizes>,
}

/// A part of a request that an upstream cannot handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartAtFault {
    /// The messages' roles, order or parts, which the model's template refuses.
    Messages,
    /// The arguments of an earlier call.
    CallArguments,
    /// Images, if the model reads only text.
    Images,
    /// The bytes of an image.
    ImageData,
    /// Tools, if the model has none.
    Tools,
}

/// Cause of an upstream's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The prompt, or the prompt with the requested output, exceeds the upstream's context.
    TooLong,
    /// The request is invalid for another reason. The part at fault is given if the error's words are known.
    Invalid(Option<PartAtFault>),
    /// The request has more bytes than the upstream accepts.
    TooLarge,
    /// The upstream is overloaded or not ready.
    Overloaded,
    /// A server behind the upstream did not answer in time.
    Timeout,
    /// The upstream failed, or its configuration does not match the gateway's.
    Broken,
}

impl UpstreamError {
    /// Returns the error's cause, judged by the status and the text. Some servers report a client's mistake as a 500,
    /// and only the text shows it.
    pub fn verdict(&self, status: u16) -> Verdict {
        let part = self.part_at_fault();
        match status {
            _ if self.is_of_account() => Verdict::Broken,
            400 | 413 | 422 | 500.. if self.says_too_long() => Verdict::TooLong,
            400 | 404 | 422 | 500.. if part.is_some() => Verdict::Invalid(part),
            400 | 422 => Verdict::Invalid(None),
            413 => Verdict::TooLarge,
            429 | 503 | 529 => Verdict::Overloaded,
            408 | 504 => Verdict::Timeout,
            500.. if self.blames_request() => Verdict::Invalid(None),
            _ => Verdict::Broken,
        }
    }

    /// Returns the part of the text that a client may read. The upstream's own name for the model, which is
    /// confidential, is replaced. Texts about the server's own failures are dropped, and anything that identifies the
    /// operator's account is removed.
    pub fn for_client(&self, status: u16, upstream_model: &str) -> Option<String> {
        let shown = status < 500 && !self.message.is_empty();
        if shown { cleaned(&without_name(&self.message, upstream_model)) } else { None }
    }

    /// Returns the location in the upstream's body that the error blames, if it is spelled as one.
    pub fn place(&self) -> Option<&str> {
        let is_of_place = |c: char| c.is_ascii_alphanumeric() || "_-.[]".contains(c);
        let is_place =
            (1..=MAX_PLACE_BYTES).contains(&self.param.len()) && self.param.chars().all(is_of_place);
        is_place.then_some(&self.param)
    }

    /// Returns the sizes of a prompt that is too long, if the upstream reports them.
    pub fn context_sizes(&self) -> Option<ContextSizes> {
        self.sizes.or_else(|| ContextSizes::in_text(&self.message))
    }

    fn part_at_fault(&self) -> Option<PartAtFault> {
        let says = |words: &&str| self.message.contains(words);
        PARTS_AT_FAULT.iter().find(|(_, words)| words.iter().any(says)).map(|(part, _)| *part)
    }

    pub(super) fn says_too_long(&self) -> bool {
        let lower = self.message.to_lowercase();
        TOO_LONG_BY_NAME.iter().any(|name| self.is(name))
            || TOO_LONG.iter().any(|words| lower.contains(words))
    }

    fn blames_request(&self) -> bool {
        // llama-cpp-python reports pydantic's validation message as a 500.
        let words = self.message.contains("validation error") && self.message.contains("'body'");
        words || REQUEST_AT_FAULT.iter().any(|name| self.is(name))
    }

    pub(super) fn is(&self, name: &str) -> bool {
        self.kind == name || self.code == name
    }
}
