//! Errors of upstreams, in the formats of different servers.

mod inside;
mod kinds;
mod limit;
mod sizes;

use serde_json::Value;

pub use limit::RefusedLimit;
pub use sizes::ContextSizes;

/// Phrases for a prompt that is too long, or that leaves too little room for the requested output. Each phrase comes
/// from the source or the documentation of a server.
const TOO_LONG: [&str; 15] = [
    "maximum context length",         // OpenAI, vLLM, Mistral, DeepSeek, llama-cpp-python
    "context length",                 // SGLang, Ollama, LM Studio
    "context window",                 // llama-cpp-python, Together
    "context size",                   // llama.cpp
    "context limit",                  // Anthropic, behind proxies
    "maximum model length",           // vLLM, of images
    "max_model_len",                  // vLLM, of a limit beyond its window
    "maximum prompt length",          // xAI
    "maximum number of tokens allow", // Gemini
    "maximum allowed length",         // SGLang's router
    "prompt is too long",             // Anthropic, TensorRT-LLM
    "max_input_length",               // Triton
    "exceed n_ctx",                   // llama-box
    "`inputs` tokens",                // Text Generation Inference
    "is too large to process",        // llama.cpp, of embeddings
];

/// Types and codes of errors that the request caused, whatever their status.
const REQUEST_AT_FAULT: [&str; 4] =
    ["invalid_request_error", "exceed_context_size_error", "context_length_exceeded", "not_supported_error"];

/// Words about a part of a request that a server cannot handle, from the sources of the servers. Several servers report
/// them with the status of a failure of their own. The first part that fits counts.
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
            "raise_exception",          // the source of a template, which llama.cpp quotes
            "Jinja Exception",          // llama.cpp
            "While executing",          // llama.cpp
            "Failed to parse messages", // llama.cpp
        ],
    ),
];

/// Most bytes of an error that is read, since an error as a tree takes many times its memory. A longer one is ignored.
pub const MAX_ERROR_BYTES: usize = 64 << 10;

/// Error of an upstream; empty if it has no readable text. The text may quote the prompt.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UpstreamError {
    pub message: String,
    /// Member `type` of the error.
    pub kind: String,
    /// Member `code` of the error, which is a status or a name.
    pub code: String,
    /// Sizes of the prompt and of the context, if members of the error have them.
    pub sizes: Option<ContextSizes>,
}

/// Part of a request that an upstream cannot handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartAtFault {
    /// The messages' roles, their order, or their parts, which the model's template refuses.
    Messages,
    /// The arguments of an earlier call.
    CallArguments,
    /// Images, if the model only reads texts.
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
    /// The request is invalid in another way: in this part, if the error's words are known.
    Invalid(Option<PartAtFault>),
    /// The request has more bytes than the upstream accepts.
    TooLarge,
    /// The upstream is overloaded or not ready.
    Overloaded,
    /// A server behind the upstream did not answer it in time.
    Timeout,
    /// The upstream failed, or the upstream and the gateway are not configured for each other.
    Broken,
}

impl UpstreamError {
    /// Reads an error from a body or an event of a stream. It may be nested (`{"error":{"message"}}`: OpenAI, vLLM,
    /// llama.cpp, Ollama, Anthropic), inside a failed response (`{"response":{"error":…}}`: OpenAI), flat
    /// (`{"object":"error","message"}`: SGLang, older vLLM), or a bare text (`{"error":"…"}`: Text Generation
    /// Inference; `{"detail":"…"}` or a list of details: FastAPI).
    pub fn read(body: &[u8]) -> Self {
        if body.len() > MAX_ERROR_BYTES {
            return Self::default();
        }
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        let of_response = &value["response"]["error"];
        let error =
            [&value["error"], of_response].into_iter().find(|error| error.is_object()).unwrap_or(&value);
        let detail = &value["detail"];
        let message = [&error["message"], &value["error"], detail, &detail[0]["msg"]];
        let kind = [&error["type"], &value["error_type"]];
        let sizes = ContextSizes::of_members(error);
        Self {
            message: first(&message),
            kind: first(&kind),
            code: first(&[&error["code"], &error["details"]["error_code"]]),
            sizes,
        }
    }

    /// Returns the cause of the error, by the response's status and the error's text. Some servers report a client's
    /// mistake as a 500, which the text reveals.
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

    /// Returns the part of the text that a client may read, without the upstream's own name for the model, which is
    /// confidential. Texts about the server's own failures are dropped, and texts with an address, a credential, a file
    /// or a stack, since the rest could still reveal secrets.
    pub fn for_client(&self, status: u16, upstream_model: &str) -> Option<String> {
        let message = inside::without_references(&self.message).replace(upstream_model, "the model");
        let shown = status < 500 && !message.is_empty() && !inside::leaks_internals(&message);
        shown.then_some(message)
    }

    /// Returns the sizes of a prompt that is too long, if the upstream reports them.
    pub fn context_sizes(&self) -> Option<ContextSizes> {
        self.sizes.or_else(|| ContextSizes::in_text(&self.message))
    }

    fn part_at_fault(&self) -> Option<PartAtFault> {
        let says = |words: &&str| self.message.contains(words);
        PARTS_AT_FAULT.iter().find(|(_, words)| words.iter().any(says)).map(|(part, _)| *part)
    }

    fn says_too_long(&self) -> bool {
        let lower = self.message.to_lowercase();
        ["exceed_context_size_error", "context_length_exceeded"].iter().any(|name| self.is(name))
            || TOO_LONG.iter().any(|words| lower.contains(words))
    }

    fn blames_request(&self) -> bool {
        // llama-cpp-python reports pydantic's message about the body as a 500.
        let words = self.message.contains("validation error") && self.message.contains("'body'");
        words || REQUEST_AT_FAULT.iter().any(|name| self.is(name))
    }

    fn is(&self, name: &str) -> bool {
        self.kind == name || self.code == name
    }
}

/// Returns the first of these values that is a text or a number.
fn first(values: &[&Value]) -> String {
    let text = |value: &&Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    values.iter().find_map(text).unwrap_or_default()
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(status: u16, body: &str) -> Verdict {
        UpstreamError::read(body.as_bytes()).verdict(status)
    }

    #[test]
    fn every_shape_of_error_is_read() {
        for (body, message, kind, code) in [
            (r#"{"error":{"message":"m","type":"t","param":null,"code":400}}"#, "m", "t", "400"),
            (r#"{"error":{"message":"m","type":"t","param":null,"code":null}}"#, "m", "t", ""),
            (r#"{"object":"error","message":"m","type":"t","param":null,"code":400}"#, "m", "t", "400"),
            (r#"{"error":"m","error_type":"validation"}"#, "m", "validation", ""),
            (r#"{"detail":"m"}"#, "m", "", ""),
            (r#"{"detail":[{"type":"missing","loc":["body","messages"],"msg":"m"}]}"#, "m", "", ""),
            ("<html>", "", "", ""),
            ("[]", "", "", ""),
            ("", "", "", ""),
        ] {
            let read = UpstreamError::read(body.as_bytes());
            assert_eq!(
                (read.message.as_str(), read.kind.as_str(), read.code.as_str()),
                (message, kind, code),
                "{body}"
            );
        }
    }

    #[test]
    fn a_prompt_that_is_too_long_is_understood_in_every_servers_words() {
        for (status, body) in [
            // vLLM
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens, which exceeds this limit even without any output tokens.","type":"BadRequestError","param":"input_tokens","code":400}}"#,
            ),
            (
                400,
                r#"{"object":"error","message":"The decoder prompt (length 10127) is longer than the maximum model length of 8192.","type":"BadRequestError","param":null,"code":400}"#,
            ),
            // SGLang
            (
                400,
                r#"{"object":"error","message":"The input (61709 tokens) is longer than the model's context length (40960 tokens).","type":"BadRequestError","param":null,"code":400}"#,
            ),
            // llama.cpp's server
            (
                400,
                r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":28680,"n_ctx":2048}}"#,
            ),
            // llama-cpp-python: within a stream too, and in one version as a 500
            (
                500,
                r#"{"error":{"message":"Requested tokens (28680) exceed context window of 2048","type":"internal_server_error","param":null,"code":null}}"#,
            ),
            // Ollama
            (
                400,
                r#"{"error":{"message":"the input length exceeds the context length","type":"invalid_request_error","param":null,"code":null}}"#,
            ),
            // OpenAI
            (
                400,
                r#"{"error":{"message":"Your input exceeds the limit.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
            ),
            // Text Generation Inference
            (
                422,
                r#"{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000","error_type":"validation"}"#,
            ),
            // llama.cpp's server, of embeddings
            (
                500,
                r#"{"error":{"code":500,"message":"input (5000 tokens) is too large to process. increase the physical batch size (current batch size: 512)","type":"server_error"}}"#,
            ),
            // Gemini
            (
                400,
                r#"{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}"#,
            ),
        ] {
            assert_eq!(verdict(status, body), Verdict::TooLong, "{body}");
        }
    }

    #[test]
    fn a_clients_mistake_stays_its_own_even_as_a_500() {
        for body in [
            r#"{"error":{"message":"1 validation error:\n  {'type': 'literal_error', 'loc': ('body', 'response_format', 'type')","type":"internal_server_error","param":null,"code":null}}"#,
            r#"{"error":{"code":500,"message":"Failed to parse grammar","type":"invalid_request_error"}}"#,
        ] {
            assert_eq!(verdict(500, body), Verdict::Invalid(None), "{body}");
        }
        assert_eq!(
            verdict(501, r#"{"error":{"code":501,"message":"m","type":"not_supported_error"}}"#),
            Verdict::Invalid(None)
        );
    }

    #[test]
    fn the_part_at_fault_is_understood_in_every_servers_words_whatever_the_status() {
        use PartAtFault::{CallArguments, ImageData, Images, Messages, Tools};
        for (status, message, part) in [
            // llama.cpp's server
            (
                500,
                r"\n------------\nWhile executing CallExpression at line 85, column 32 in source:\n...first %}↵            {{- raise_exception('System message must be at the beginnin...\n                                           ^\nError: Jinja Exception: System message must be at the beginning.",
                Messages,
            ),
            (
                400,
                r"Unable to generate parser for this template. Automatic parser generation failed: \n------------\nWhile executing FilterExpression at line 3, column 9 in source:\n",
                Messages,
            ),
            (
                500,
                "Failed to parse messages: [json.exception.type_error.302] type must be string, but is array",
                Messages,
            ),
            (
                500,
                r#"Failed to parse tool call arguments as JSON: [json.exception.parse_error.101] parse error at line 1, column 10: syntax error while parsing value - invalid string: missing closing quote; last read: '\"ca'"#,
                CallArguments,
            ),
            (
                500,
                "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
                Images,
            ),
            (500, "Failed to load image or audio file", ImageData),
            (500, "tools param requires --jinja flag", Tools),
            // vLLM
            (400, "Qwen2.5-7B-Instruct is not a multimodal model", Images),
            (400, "At most 0 image(s) may be provided in one prompt.", Images),
            // Ollama
            (400, "invalid tool call arguments", CallArguments),
            (500, "this model is missing data required for image input", Images),
            (400, "registry.ollama.ai/library/gemma:2b does not support tools", Tools),
            // OpenRouter
            (404, "No endpoints found that support image input", Images),
        ] {
            let body = format!(r#"{{"error":{{"message":{message:?},"type":"server_error"}}}}"#)
                .replace(r"\\n", r"\n");
            assert_eq!(verdict(status, &body), Verdict::Invalid(Some(part)), "{body}");
        }
        // Our credential is refused, whatever the words.
        assert_eq!(verdict(401, r#"{"error":{"message":"raise_exception"}}"#), Verdict::Broken);
    }

    #[test]
    fn what_is_not_the_clients_mistake_is_not_blamed_on_it() {
        for (status, expected) in [
            (400, Verdict::Invalid(None)),
            (422, Verdict::Invalid(None)),
            (413, Verdict::TooLarge),
            (429, Verdict::Overloaded),
            (503, Verdict::Overloaded),
            (529, Verdict::Overloaded),
            (408, Verdict::Timeout),
            (504, Verdict::Timeout),
            (302, Verdict::Broken),
            (401, Verdict::Broken),
            (403, Verdict::Broken),
            (404, Verdict::Broken),
            (500, Verdict::Broken),
            (502, Verdict::Broken),
        ] {
            assert_eq!(
                verdict(status, r#"{"error":{"message":"m","type":"server_error"}}"#),
                expected,
                "{status}"
            );
        }
        // A rejected credential of ours cannot mean that the client's request is too large.
        assert_eq!(
            verdict(401, r#"{"error":{"message":"m","type":"invalid_request_error"}}"#),
            Verdict::Broken
        );
    }

    #[test]
    fn what_a_server_says_of_its_own_failure_is_not_for_clients() {
        let error = UpstreamError::read(br#"{"error":{"message":"out of luck"}}"#);
        let for_client = |status| error.for_client(status, "m/7b");
        assert_eq!((for_client(400).as_deref(), for_client(500)), (Some("out of luck"), None));
        assert_eq!(UpstreamError::default().for_client(400, "m/7b"), None);
    }

    #[test]
    fn words_that_name_what_is_inside_are_not_for_clients_whatever_the_status() {
        let body = br#"{"error":{"message":"bad key sk-SECRET123456 at http://10.0.0.5:8000/v1"}}"#;
        for status in [400, 422, 500] {
            assert_eq!(UpstreamError::read(body).for_client(status, "m/7b"), None, "{status}");
        }
    }

    #[test]
    fn the_upstreams_name_for_the_model_is_left_out() {
        let error = UpstreamError { message: "/models/7b sees no images".into(), ..UpstreamError::default() };
        assert_eq!(error.for_client(400, "/models/7b").as_deref(), Some("the model sees no images"));
    }

    #[test]
    fn an_event_has_the_status_that_its_code_says() {
        let of_event = |code: &str| {
            let event =
                UpstreamError::read(format!(r#"{{"error":{{"message":"m","code":{code}}}}}"#).as_bytes());
            event.verdict(event.status_in_stream())
        };
        assert_eq!(of_event("400"), Verdict::Invalid(None));
        assert_eq!(of_event("\"400\""), Verdict::Invalid(None));
        assert_eq!(of_event("503"), Verdict::Overloaded);
        assert_eq!(of_event("null"), Verdict::Broken);
        assert_eq!(of_event("\"context_length_exceeded\""), Verdict::TooLong);
    }
}
