//! Errors of upstreams, in the formats of different servers.

mod error;
mod inside;
mod kinds;
mod limit;
mod sizes;

pub use error::{MAX_ERROR_BYTES, PartAtFault, UpstreamError, Verdict};
pub use limit::RefusedLimit;
pub use sizes::ContextSizes;

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
