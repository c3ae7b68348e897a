//! Responses requests that OpenAI refuses.

use serde_json::Value;

use super::{
    items,
    openai::{at_most, need, of_type, one_of, only, refused, strict_schema, within},
    refusal::{Checked, Purpose, is_plain},
};
use crate::upstream::prompts::prompt::Prompt;

/// Minimum value for the limit of an answer.
const LEAST_OUTPUT_TOKENS: i64 = 16;

/// Values that `include` may contain.
const INCLUDED: [&str; 8] = [
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
];

/// Types in `tool_param.py`.
const TOOLS: [&str; 18] = [
    "function",
    "custom",
    "namespace",
    "local_shell",
    "shell",
    "apply_patch",
    "computer",
    "computer_use_preview",
    "tool_search",
    "programmatic_tool_calling",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "file_search",
    "code_interpreter",
    "image_generation",
    "mcp",
];

/// Members that a tool run by the client may have.
const OF_CLIENT_TOOLS: [&str; 10] = [
    "type",
    "name",
    "description",
    "parameters",
    "strict",
    "format",
    "defer_loading",
    "async",
    "allowed_callers",
    "output_schema",
];

/// Checks a request.
pub(super) fn check(prompt: &Prompt, purpose: Purpose) -> Checked {
    let body = &prompt.body;
    if purpose == Purpose::Generate {
        need("", body, &["model", "input"])?;
        generation(body)?;
    }
    of_type("model", &body["model"], "a string")?;
    of_type("instructions", &body["instructions"], "a string")?;
    of_type("parallel_tool_calls", &body["parallel_tool_calls"], "a boolean")?;
    one_of("truncation", &body["truncation"], &["auto", "disabled"])?;
    nothing_stored(body)?;
    reasoning(&body["reasoning"])?;
    text(body)?;
    tools(&body["tools"])?;
    tool_choice(body)?;
    items::check(body)
}

/// Checks the members that only a generation has.
fn generation(body: &Value) -> Checked {
    of_type("max_output_tokens", &body["max_output_tokens"], "an integer")?;
    if let Some(most) = body["max_output_tokens"].as_i64().filter(|most| *most < LEAST_OUTPUT_TOKENS) {
        let message = format!(
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= {LEAST_OUTPUT_TOKENS}, but got {most} instead."
        );
        return refused("integer_below_min_value", "max_output_tokens", &message);
    }
    for name in ["stream", "store", "background"] {
        of_type(name, &body[name], "a boolean")?;
    }
    within("temperature", &body["temperature"], 0.0, 2.0)?;
    within("top_p", &body["top_p"], 0.0, 1.0)?;
    only("stream_options", &body["stream_options"], &["include_obfuscation"])?;
    if !body["stream_options"].is_null() && body["stream"] != true {
        return refused(
            "invalid_value",
            "stream_options",
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        );
    }
    for (index, word) in body["include"].as_array().into_iter().flatten().enumerate() {
        one_of(&format!("include[{index}]"), word, &INCLUDED)?;
    }
    at_most("prompt_cache_key", &body["prompt_cache_key"], 64)?;
    at_most("safety_identifier", &body["safety_identifier"], 128)?;
    let tiers = ["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"];
    one_of("service_tier", &body["service_tier"], &tiers)
}

/// Refuses references to objects that only an upstream with storage could know.
fn nothing_stored(body: &Value) -> Checked {
    let shown = |value: &Value| value["id"].as_str().or(value.as_str()).unwrap_or_default().to_owned();
    for (name, code, words) in [
        ("previous_response_id", "previous_response_not_found", "Previous response"),
        ("conversation", "conversation_not_found", "Conversation"),
        ("prompt", "prompt_not_found", "Prompt"),
    ] {
        if !body[name].is_null() {
            return refused(code, name, &format!("{words} with id '{}' not found.", shown(&body[name])));
        }
    }
    if body["background"] == true && body["store"] == false {
        return refused("invalid_value", "background", "Background mode requires 'store' to be true.");
    }
    Ok(())
}

fn reasoning(reasoning: &Value) -> Checked {
    of_type("reasoning", reasoning, "an object")?;
    only("reasoning", reasoning, &["effort", "summary", "generate_summary", "context", "mode"])?;
    let efforts = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
    one_of("reasoning.effort", &reasoning["effort"], &efforts)?;
    for name in ["summary", "generate_summary"] {
        one_of(&format!("reasoning.{name}"), &reasoning[name], &["auto", "concise", "detailed"])?;
    }
    Ok(())
}

fn text(body: &Value) -> Checked {
    let (text, path) = (&body["text"], "text.format");
    only("text", text, &["format", "verbosity"])?;
    one_of("text.verbosity", &text["verbosity"], &["low", "medium", "high"])?;
    let format = &text["format"];
    one_of("text.format.type", &format["type"], &["text", "json_object", "json_schema"])?;
    match format["type"].as_str() {
        Some("json_schema") => {
            only(path, format, &["type", "name", "description", "schema", "strict"])?;
            need(path, format, &["name", "schema"])?;
            let name = format["name"].as_str().unwrap_or_default();
            plain_name("text.format.name", name)?;
            if format["strict"] == true {
                let what = format!("response_format '{name}'");
                return strict_schema(&what, "text.format.schema", "invalid_json_schema", &format["schema"]);
            }
            Ok(())
        }
        Some("json_object") if !body["input"].to_string().to_lowercase().contains("json") => {
            let message = "Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'.";
            refused("invalid_value", "input", message)
        }
        Some(_) => only(path, format, &["type"]),
        None if format.is_null() => Ok(()),
        None => need(path, format, &["type"]),
    }
}

fn plain_name(param: &str, name: &str) -> Checked {
    at_most(param, &name.into(), 64)?;
    if is_plain(name) {
        return Ok(());
    }
    let message = format!(
        "Invalid '{param}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
    );
    refused("invalid_value", param, &message)
}

fn tools(tools: &Value) -> Checked {
    of_type("tools", tools, "an array")?;
    for (index, tool) in tools.as_array().into_iter().flatten().enumerate() {
        let path = format!("tools[{index}]");
        need(&path, tool, &["type"])?;
        one_of(&format!("{path}.type"), &tool["type"], &TOOLS)?;
        if tool["type"] != "function" && tool["type"] != "custom" {
            continue;
        }
        need(&path, tool, &["name"])?;
        only(&path, tool, &OF_CLIENT_TOOLS)?;
        let name = tool["name"].as_str().unwrap_or_default();
        plain_name(&format!("{path}.name"), name)?;
        of_type(&format!("{path}.parameters"), &tool["parameters"], "an object")?;
        if tool["strict"] == true {
            let (what, param) = (format!("function '{name}'"), format!("{path}.parameters"));
            strict_schema(&what, &param, "invalid_function_parameters", &tool["parameters"])?;
        }
    }
    Ok(())
}

fn tool_choice(body: &Value) -> Checked {
    let (choice, tools) = (&body["tool_choice"], body["tools"].as_array());
    let none = tools.is_none_or(Vec::is_empty);
    let shown = match choice {
        Value::String(word) => {
            one_of("tool_choice", choice, &["none", "auto", "required"])?;
            word.as_str()
        }
        Value::Object(_) => choice["type"].as_str().unwrap_or_default(),
        Value::Null => return Ok(()),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            return of_type("tool_choice", choice, "an object");
        }
    };
    if none && shown != "none" && shown != "auto" {
        let message = format!("Tool choice '{shown}' must be specified with 'tools' parameter.");
        return refused("invalid_value", "tool_choice", &message);
    }
    if shown != "function" && shown != "custom" {
        return Ok(());
    }
    only("tool_choice", choice, &["type", "name"])?;
    need("tool_choice", choice, &["name"])?;
    let mut names = tools.into_iter().flatten().map(|tool| &tool["name"]);
    if names.any(|name| *name == choice["name"]) {
        return Ok(());
    }
    refused("invalid_value", "tool_choice", &format!("Tool choice '{shown}' not found in 'tools' parameter."))
}
