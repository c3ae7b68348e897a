//! Top-level members that each API accepts, as the vendors' SDKs declare them.

use serde_json::Value;

use super::refusal::{Checked, Purpose};
use crate::upstream::{native::error::ApiError, record::Api};

/// Members in `message_create_params.py`, and the sampling parameters of older models.
const MESSAGES: [&str; 20] = [
    "model",
    "max_tokens",
    "messages",
    "system",
    "cache_control",
    "container",
    "diagnostics",
    "inference_geo",
    "metadata",
    "output_config",
    "service_tier",
    "speed",
    "stop_sequences",
    "stream",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
];

/// Members in `beta/message_create_params.py`, and two that Claude Code sends. They need the header `anthropic-beta`.
const MESSAGES_BETA: [&str; 10] = [
    "billing_policy",
    "compaction",
    "context_management",
    "fallback_credit_token",
    "fallbacks",
    "mcp_servers",
    "output_format",
    "safeguards",
    "tags",
    "thread",
];

/// Members in `message_count_tokens_params.py`.
const COUNT_TOKENS: [&str; 9] = [
    "model",
    "messages",
    "system",
    "cache_control",
    "output_config",
    "speed",
    "thinking",
    "tool_choice",
    "tools",
];

/// Members in `beta/message_count_tokens_params.py` that need the header `anthropic-beta`.
const COUNT_TOKENS_BETA: [&str; 5] =
    ["billing_policy", "compaction", "context_management", "mcp_servers", "output_format"];

/// Members in `response_create_params.py`, and `client_metadata`, which Codex sends.
const RESPONSES: [&str; 35] = [
    "access_programs",
    "background",
    "background_options",
    "client_metadata",
    "context_management",
    "conversation",
    "image",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "moderation",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];

/// Members in `input_token_count_params.py`.
const INPUT_TOKENS: [&str; 12] = [
    "conversation",
    "input",
    "instructions",
    "model",
    "parallel_tool_calls",
    "personality",
    "previous_response_id",
    "reasoning",
    "text",
    "tool_choice",
    "tools",
    "truncation",
];

/// Refuses a body with a member that the API does not accept. `beta` says whether the request has the header
/// `anthropic-beta`.
pub(super) fn check(api: Api, purpose: Purpose, body: &Value, beta: bool) -> Checked {
    let (known, with_beta): (&[&str], &[&str]) = match (api, purpose) {
        (Api::Messages, Purpose::Generate) => (&MESSAGES, &MESSAGES_BETA),
        (Api::Messages, Purpose::Count) => (&COUNT_TOKENS, &COUNT_TOKENS_BETA),
        (Api::Responses | Api::Chat, Purpose::Generate) => (&RESPONSES, &[]),
        (Api::Responses | Api::Chat, Purpose::Count) => (&INPUT_TOKENS, &[]),
    };
    let mut names = body.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let is_known = |name: &&str| known.contains(name) || (beta && with_beta.contains(name));
    match names.find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) if api == Api::Messages => {
            Err(ApiError::invalid(&format!("{name}: Extra inputs are not permitted"), None))
        }
        Some(name) => Err(ApiError {
            code: Some("unknown_parameter"),
            ..ApiError::invalid(&format!("Unknown parameter: '{name}'."), Some(name))
        }),
    }
}
