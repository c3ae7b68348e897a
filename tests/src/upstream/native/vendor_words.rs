//! The vendors' wording of refusals about an account.

use super::error::ApiError;
use crate::upstream::{
    faults::vendor_error::{ORGANIZATION, RETRY_AFTER_SECONDS, VendorError},
    record::Api,
};

impl ApiError {
    /// Returns this error as the API's vendor words it.
    pub(super) fn of_vendor(api: Api, error: VendorError, model: &str) -> Self {
        match api {
            Api::Messages => of_anthropic(error),
            Api::Responses | Api::Chat => of_openai(api, error, model),
        }
    }

    /// Returns the error about a credential that the vendor does not know.
    pub(super) fn wrong_key(api: Api) -> Self {
        let message = match api {
            Api::Messages => "invalid x-api-key",
            Api::Responses | Api::Chat => {
                "Incorrect API key provided: sk-scrip***ream. You can find your API key at https://platform.openai.com/account/api-keys."
            }
        };
        Self { status: 401, ..Self::invalid(message, None) }
    }

    /// Returns the error about a prompt that is longer than the window.
    pub(super) fn prompt_too_long(api: Api, prompt: u64, window: u64) -> Self {
        match api {
            Api::Messages => {
                Self::invalid(&format!("prompt is too long: {prompt} tokens > {window} maximum"), None)
            }
            Api::Responses => Self {
                code: Some("context_length_exceeded"),
                ..Self::invalid(
                    "Your input exceeds the context window of this model. Please adjust your input and try again.",
                    Some("input"),
                )
            },
            Api::Chat => Self {
                code: Some("context_length_exceeded"),
                ..Self::invalid(
                    &format!(
                        "This model's maximum context length is {window} tokens. However, your messages resulted in {prompt} tokens. Please reduce the length of the messages."
                    ),
                    Some("messages"),
                )
            },
        }
    }
}

fn of_anthropic(error: VendorError) -> ApiError {
    match error {
        VendorError::Overloaded => ApiError { status: 529, ..ApiError::invalid("Overloaded", None) },
        VendorError::RateLimited => ApiError {
            status: 429,
            retry_after: Some(RETRY_AFTER_SECONDS),
            ..ApiError::invalid(
                &format!(
                    "This request would exceed the rate limit for your organization {ORGANIZATION} of 30,000 input tokens per minute. For details, refer to: https://docs.claude.com/en/api/rate-limits. You can see the response headers for current usage. Please reduce the prompt length or the maximum tokens requested, or try again later. You may also contact sales at https://claude.com/contact-sales to discuss your options for a rate limit increase."
                ),
                None,
            )
        },
        VendorError::NoCredit => ApiError::invalid(
            "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.",
            None,
        ),
        VendorError::PromptTooLong => ApiError::prompt_too_long(Api::Messages, 214_431, 200_000),
        VendorError::LimitTooLong => ApiError::invalid(
            "input length and `max_tokens` exceed context limit: 188059 + 20000 > 200000, decrease input length or `max_tokens` and try again",
            None,
        ),
        VendorError::WrongKey => ApiError::wrong_key(Api::Messages),
    }
}

fn of_openai(api: Api, error: VendorError, model: &str) -> ApiError {
    match error {
        VendorError::Overloaded => ApiError {
            status: 503,
            kind: Some("service_unavailable_error"),
            code: Some("server_is_overloaded"),
            ..ApiError::invalid("Our servers are currently overloaded. Please try again later.", None)
        },
        VendorError::RateLimited => ApiError {
            status: 429,
            kind: Some("tokens"),
            retry_after: Some(RETRY_AFTER_SECONDS),
            ..ApiError::invalid(
                &format!(
                    "Rate limit reached for {model} in organization {ORGANIZATION} on tokens per min (TPM): Limit 30000, Used 18928, Requested 14572. Please try again in {RETRY_AFTER_SECONDS}s. Visit https://platform.openai.com/account/rate-limits to learn more."
                ),
                None,
            )
        },
        VendorError::NoCredit => ApiError {
            status: 429,
            kind: Some("insufficient_quota"),
            code: Some("insufficient_quota"),
            ..ApiError::invalid(
                "You exceeded your current quota, please check your plan and billing details. For more information on this error, read the docs: https://platform.openai.com/docs/guides/error-codes/api-errors.",
                None,
            )
        },
        VendorError::PromptTooLong | VendorError::LimitTooLong => {
            ApiError::prompt_too_long(api, 214_431, 200_000)
        }
        VendorError::WrongKey => ApiError::wrong_key(api),
    }
}
