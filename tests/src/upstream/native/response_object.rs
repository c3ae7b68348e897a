//! The object `response` in OpenAI's Responses API.

use serde_json::{Value, json};

use crate::upstream::{
    faults::fault::Fault,
    prompts::plan::{NativePlan, Reported, Shortened},
    script::Usage,
};

/// Creation time of every scripted response.
const CREATED: u64 = 1_700_000_000;

/// Returns the response with this status and these items. Only a finished response reports its usage.
pub(super) fn response(plan: &NativePlan, status: &str, output: &[Value]) -> Value {
    let echoed = |member: &str, or: Value| plan.echoed(member, or);
    let text = echoed("text", json!({"format": {"type": "text"}, "verbosity": "medium"}));
    json!({
        "id": format!("resp_{:06}", plan.serial), "object": "response", "created_at": CREATED, "status": status,
        "background": false,
        "completed_at": if status == "completed" { json!(CREATED + 1) } else { Value::Null },
        "error": null, "incomplete_details": null,
        "instructions": echoed("instructions", Value::Null),
        "max_output_tokens": echoed("max_output_tokens", Value::Null),
        "max_tool_calls": echoed("max_tool_calls", Value::Null),
        "model": plan.model(), "output": output,
        "parallel_tool_calls": echoed("parallel_tool_calls", true.into()),
        "previous_response_id": null,
        "prompt_cache_key": echoed("prompt_cache_key", Value::Null),
        "prompt_cache_retention": echoed("prompt_cache_retention", Value::Null),
        "reasoning": echoed("reasoning", json!({"effort": null, "summary": null})),
        "safety_identifier": echoed("safety_identifier", Value::Null),
        "service_tier": "default",
        "store": echoed("store", true.into()),
        "temperature": echoed("temperature", json!(1.0)),
        "text": text,
        "tool_choice": echoed("tool_choice", "auto".into()),
        "tools": echoed("tools", json!([])),
        "top_logprobs": echoed("top_logprobs", 0.into()),
        "top_p": echoed("top_p", json!(1.0)),
        "truncation": echoed("truncation", "disabled".into()),
        "usage": null,
        "user": echoed("user", Value::Null),
        "metadata": echoed("metadata", json!({})),
    })
}

/// Returns the status at the end, and why a response is incomplete.
pub(super) fn status(plan: &NativePlan) -> (&'static str, Option<&str>) {
    match (&plan.script.finish_reason, plan.shortened) {
        _ if plan.script.fault == Fault::NoFinishReason => ("in_progress", None),
        (Some(reason), _) if reason == "stop" || reason == "completed" => ("completed", None),
        (Some(reason), _) => ("incomplete", Some(reason)),
        (None, Some(Shortened::ByLimit | Shortened::ByWindow)) => ("incomplete", Some("max_output_tokens")),
        (None, None) => ("completed", None),
    }
}

/// Returns the object `usage`; null if no usage is reported.
pub(super) fn usage(plan: &NativePlan, reported: Reported) -> Value {
    let Usage { prompt, cached, completion } = match reported {
        Reported::Nothing => return Value::Null,
        Reported::Verbatim(mark) => return mark.into(),
        Reported::Counts(usage) => usage,
    };
    json!({
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": plan.reasoning(completion)},
        "total_tokens": prompt.saturating_add(completion),
    })
}
