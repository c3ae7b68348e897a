//! Writes a chat as a request of the Messages API.

mod cache;
mod turns;

use shared::{error::ApiError, json::Kind};
use shared_catalog::Effort;

use super::chat::{Hub, LEFT_OUT, ToolChoice, member};
use crate::names::dropped::DroppedNames;
use cache::Breakpoints;
use turns::Turns;

/// Schema of a function without parameters.
const NO_PARAMETERS: &str = r#"{"type":"object","properties":{}}"#;
/// Sampling parameters that the API refuses together with thinking.
const REFUSED_BESIDE_THINKING: [&str; 3] = ["temperature", "top_p", "top_k"];
/// Highest temperature that the API accepts. A higher temperature is lowered to this, as in the vendor's own chat API.
const MOST_TEMPERATURE: &str = "1";

/// Writes the body without its head. If accounts have separate caches, the body starts within the system prompt, whose
/// first block is in the head.
pub(super) fn write(
    hub: &Hub<'_>,
    cache_breakpoints: bool,
    is_separate: bool,
    dropped: &mut DroppedNames,
) -> Result<String, ApiError> {
    hub.refuse_unsaid()?;
    if hub.chat.get("logprobs").is_some_and(|value| value.raw() == "true") {
        return Err(hub.refusal("logprobs"));
    }
    hub.leave_out(&LEFT_OUT, dropped);
    let mut out = hub.begin();
    let (mut turns, messages) = (Turns::default(), hub.chat.require("messages")?);
    if is_separate {
        turns.system_first(&messages, &mut out)?;
    }
    let choice = ToolChoice::read(hub)?;
    let is_forced = matches!(choice, Some(ToolChoice::Mode("required") | ToolChoice::Function(_)));
    let thinks = thinking(hub, is_forced, &mut out);
    if thinks {
        hub.leave_out(&REFUSED_BESIDE_THINKING, dropped);
    } else {
        sampling(hub, &mut out);
    }
    output_config(hub, &mut out)?;
    stop_sequences(hub, &mut out);
    let mut breakpoints = Breakpoints::default();
    let end_of_tools = tools(hub, &mut out)?;
    // The tools come before the block that differs by account, so a cache entry that ends with the tools would be
    // shared by accounts.
    if let Some(brace) = end_of_tools.filter(|_| !is_separate) {
        breakpoints.after_tools(brace);
    }
    tool_choice(hub, choice, &mut out);
    messages.objects(usize::MAX, |message| turns.add(message, &hub.carried(message), &mut out))?;
    turns.end(&mut breakpoints, &mut out);
    out.push('}');
    if cache_breakpoints {
        breakpoints.write(&mut out);
    }
    Ok(out)
}

/// Decides whether the model is to think, writes the decision, and returns it. The model cannot think if the tool
/// choice forces a call.
fn thinking(hub: &Hub<'_>, is_forced: bool, out: &mut String) -> bool {
    match hub.effort {
        None => false,
        Some(Effort::None) => {
            member("thinking", r#"{"type":"disabled"}"#, out);
            false
        }
        Some(_) if is_forced => false,
        Some(_) => {
            let display = if hub.shows_reasoning() { "summarized" } else { "omitted" };
            member("thinking", &format!(r#"{{"type":"adaptive","display":"{display}"}}"#), out);
            true
        }
    }
}

fn sampling(hub: &Hub<'_>, out: &mut String) {
    if let Some(temperature) = hub.chat.get("temperature") {
        let is_beyond = temperature.raw().parse::<f64>().is_ok_and(|temperature| temperature > 1.0);
        member("temperature", if is_beyond { MOST_TEMPERATURE } else { temperature.raw() }, out);
    }
    hub.copy("top_p", out);
    hub.copy("top_k", out);
}

/// Writes the effort and the format of the answer. The API supports schemas for the answer, but not JSON without a
/// schema.
fn output_config(hub: &Hub<'_>, out: &mut String) -> Result<(), ApiError> {
    let mut members = String::new();
    match hub.effort {
        None | Some(Effort::None) => {}
        // The lowest effort of the API is `low`.
        Some(Effort::Minimal) => member("effort", "\"low\"", &mut members),
        Some(effort) => member("effort", &format!("\"{}\"", effort.word()), &mut members),
    }
    if let Some(format) = hub.chat.get("response_format") {
        let format = format.object()?;
        match &*format.require("type")?.string()? {
            "json_schema" => {
                let described = format.require("json_schema")?;
                let schema = described.object()?.require("schema")?.raw().to_owned();
                let json = format!(r#"{{"type":"json_schema","schema":{schema}}}"#);
                member("format", &json, &mut members);
            }
            "text" => {}
            _ => return Err(hub.refusal("response_format")),
        }
    }
    if !members.is_empty() {
        member("output_config", &format!("{{{}}}", &members[1..]), out);
    }
    Ok(())
}

fn stop_sequences(hub: &Hub<'_>, out: &mut String) {
    match hub.chat.get("stop") {
        Some(stop) if stop.kind() == Kind::String => {
            member("stop_sequences", &format!("[{}]", stop.raw()), out);
        }
        Some(stop) => member("stop_sequences", stop.raw(), out),
        None => {}
    }
}

/// Writes the functions. Returns the position of the closing brace of the last function.
fn tools(hub: &Hub<'_>, out: &mut String) -> Result<Option<usize>, ApiError> {
    let mut before = ",\"tools\":[";
    hub.each_function(|function| {
        out.push_str(std::mem::replace(&mut before, ","));
        out.push_str("{\"name\":");
        out.push_str(function.require("name")?.raw());
        if let Some(description) = function.get("description") {
            member("description", description.raw(), out);
        }
        let parameters = function.get("parameters");
        member("input_schema", parameters.as_ref().map_or(NO_PARAMETERS, |value| value.raw()), out);
        if function.get("strict").is_some_and(|strict| strict.raw() == "true") {
            member("strict", "true", out);
        }
        out.push('}');
        Ok(())
    })?;
    let end = (before == ",").then(|| out.len() - 1);
    if end.is_some() {
        out.push(']');
    }
    Ok(end)
}

fn tool_choice(hub: &Hub<'_>, choice: Option<ToolChoice<'_>>, out: &mut String) {
    let is_single = hub.chat.get("parallel_tool_calls").is_some_and(|parallel| parallel.raw() == "false");
    let mut json = match choice {
        None if !is_single => return,
        None | Some(ToolChoice::Mode("auto")) => r#"{"type":"auto""#.to_owned(),
        Some(ToolChoice::Mode("required")) => r#"{"type":"any""#.to_owned(),
        Some(ToolChoice::Mode(_)) => return member("tool_choice", r#"{"type":"none"}"#, out),
        Some(ToolChoice::Function(name)) => format!(r#"{{"type":"tool","name":{name}"#),
    };
    if is_single {
        json.push_str(r#","disable_parallel_tool_use":true"#);
    }
    json.push('}');
    member("tool_choice", &json, out);
}
