//! Errors of upstreams, in the formats of different servers.

mod cleaned;
mod error;
mod inside;
mod kinds;
mod limit;
mod member;
mod name;
mod operator;
mod read;
mod sizes;

pub use error::{MAX_ERROR_BYTES, PartAtFault, UpstreamError, Verdict};
pub use limit::RefusedLimit;
pub use member::{RefusedMember, RefusedMembers};
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
            (
                400,
                r#"{"error":{"message":"Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)","type":"invalid_request_error"}}"#,
            ), // Moonshot
            (400, r#"{"error":{"code":"1261","message":"Prompt exceeds max length"}}"#), // Z.ai
            (400, r#"{"error":{"code":"1210","message":"tokens in request more than max tokens allowed"}}"#), // Z.ai
            (
                413,
                r#"{"error":{"message":"Please reduce the length of the messages or completion.","type":"invalid_request_error"}}"#,
            ), // Groq
            (
                400,
                r#"{"error":{"code":"invalid_parameter_error","message":"Range of input length should be [1, 129024]"}}"#,
            ), // Alibaba
            (400, r#"{"message":"Input is too long for requested model."}"#), // Bedrock
            (
                400,
                r#"{"error":{"message":"prompt token count of 140000 exceeds the limit of 128000","code":"model_max_prompt_tokens_exceeded"}}"#,
            ), // Copilot
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
            // llama.cpp's server, for embeddings
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

    /// Vendors' sentences about the account of whoever asks, as their users report them, with the statuses.
    const OF_ACCOUNT: [(u16, &str); 27] = [
        // OpenAI
        (
            400,
            "Your organization must be verified to stream this model. Please go to: https://platform.openai.com/settings/organization/general and click on Verify Organization. If you just verified, it can take up to 15 minutes for access to propagate.",
        ),
        (400, "Billing hard limit has been reached"),
        (400, "No such organization: org-4tGhJk2LmN."),
        (400, "Project `proj_9sKdQ2` does not have access to model `gpt-6`."),
        (
            400,
            "Incorrect API key provided: sk-proj-********AbCd. You can find your API key at https://platform.openai.com/account/api-keys.",
        ),
        (429, "Your account is not active, please check your billing details on our website."),
        // Anthropic
        (
            400,
            "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.",
        ),
        (400, "This organization has been disabled."),
        (
            400,
            "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC.",
        ),
        (400, "The long context beta is not yet available for this subscription."),
        // Azure
        (
            400,
            "The API deployment for this resource does not exist. If you created the deployment within the last 5 minutes, please wait a moment and try again.",
        ),
        (
            422,
            "Access denied due to invalid subscription key or wrong API endpoint. Make sure to provide a valid key for an active subscription and use a correct regional API endpoint for your resource.",
        ),
        (400, "Access denied due to Virtual Network/Firewall rules."),
        // Bedrock
        (
            400,
            "User: arn:aws:iam::123456789012:user/gateway is not authorized to perform: bedrock:InvokeModel on resource: arn:aws:bedrock:us-east-1::foundation-model/x because no identity-based policy allows the bedrock:InvokeModel action",
        ),
        (400, "You don't have access to the model with the specified model ID."),
        (
            400,
            "Invocation of model ID x with on-demand throughput isn\u{2019}t supported. Retry your request with the ID or ARN of an inference profile that contains this model.",
        ),
        (
            400,
            "Model use case details have not been submitted for this account. Fill out the Anthropic use case details form before using the model.",
        ),
        (400, "INVALID_PAYMENT_INSTRUMENT: A valid payment instrument must be provided."),
        // Gemini and Vertex
        (400, "API key not valid. Please pass a valid API key."),
        (400, "User location is not supported for the API use."),
        (
            400,
            "Gemini API free tier is not available in your country. Please enable billing on your project in Google AI Studio.",
        ),
        (
            400,
            "Vertex AI API has not been used in project 123456789012 before or it is disabled. Enable it by visiting https://console.developers.google.com/apis/api/aiplatform.googleapis.com/overview?project=123456789012 then retry.",
        ),
        (
            400,
            "Permission 'aiplatform.endpoints.predict' denied on resource '//aiplatform.googleapis.com/projects/acme-prod/locations/us-central1/publishers/google/models/x' (or it may not exist).",
        ),
        // Others
        (
            400,
            "Organization has been restricted. Please reach out to support if you believe this was in error.",
        ),
        (400, "Access denied, please make sure your account is in good standing."),
        (
            429,
            "Your account org-7f3a<ak-9xyz> is suspended due to insufficient balance, please recharge your account or check your plan and billing details",
        ),
        (
            413,
            "Account acme-prod is suspended, possibly due to reaching the monthly spending limit. Write to ops@acme.example.",
        ),
    ];

    #[test]
    fn what_a_vendor_says_of_the_operators_account_is_no_fault_of_a_request() {
        for (status, message) in OF_ACCOUNT {
            let body = serde_json::json!({"error": {"message": message, "type": "invalid_request_error"}});
            for body in [body.clone(), serde_json::json!([body])] {
                assert_eq!(verdict(status, &body.to_string()), Verdict::Broken, "{message}");
            }
        }
    }

    #[test]
    fn names_of_the_operators_account_are_cut_out_of_what_concerns_a_request() {
        for (message, shown) in [
            (
                "Rate limit reached for m in organization org-4tGhJk2LmN on tokens per min (TPM): Limit 30000, Used 18928, Requested 14572. Please try again in 7s. Visit https://platform.openai.com/account/rate-limits to learn more.",
                Some(
                    "Rate limit reached for m in organization … on tokens per min (TPM): Limit 30000, Used 18928, Requested 14572. Please try again in 7s.",
                ),
            ),
            (
                "This request would exceed the rate limit for your organization 0f1e2d3c of 30,000 input tokens per minute.",
                None,
            ),
            (
                "Requests have exceeded the token rate limit of your current OpenAI S0 pricing tier. Please retry after 26 seconds.",
                Some("Please retry after 26 seconds."),
            ),
            (
                "The images for deployment prod-eu-1 of account 123456789012 are too many; ask ops@acme.example.",
                Some("The images for deployment … of account … are too many; ask …."),
            ),
            (
                "Model arn:aws:bedrock:us-east-1:123456789012:inference-profile/x takes no images.",
                Some("Model … takes no images."),
            ),
            (
                "Invalid schema for function 'organization_of': 'project' is a required property.",
                Some("Invalid schema for function 'organization_of': 'project' is a required property."),
            ),
        ] {
            let error = UpstreamError { message: message.into(), ..UpstreamError::default() };
            assert_eq!(error.for_client(400, "m/7b").as_deref(), shown, "{message}");
        }
    }

    #[test]
    fn a_place_is_told_if_it_is_spelled_as_one() {
        let place = |param: &str| {
            let body = serde_json::json!({"error": {"message": "m", "param": param}}).to_string();
            UpstreamError::read(body.as_bytes()).place().map(str::to_owned)
        };
        for param in ["input[0].content[1].image_url", "max_output_tokens", "messages.0.content"] {
            assert_eq!(place(param).as_deref(), Some(param));
        }
        for param in ["", "a b", "x\n", "http://10.0.0.1", &"a".repeat(201)] {
            assert_eq!(place(param), None, "{param}");
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
