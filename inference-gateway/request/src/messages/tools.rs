//! The offered tools and their choice.

use raw_json::{Members, Value};
use shared::error::{ApiError, Code};

use crate::{
    draft::{Draft, Function, MAX_TOOLS, name, unsupported_kind},
    names::{dropped::DroppedNames, known},
};

/// Checks and writes the tools and the tool choice. Tools that run on a provider's servers are dropped. If no tool is
/// left, nothing is written.
pub(super) fn tools(body: &Members<'_, '_>, draft: &mut Draft) -> Result<DroppedNames, ApiError> {
    let (mut dropped, mut offered) = (DroppedNames::default(), Vec::new());
    if let Some(list) = body.get("tools") {
        list.objects_if_any(MAX_TOOLS, |tool| match tool.get("type") {
            Some(kind) if kind.string()? != "custom" => {
                dropped.add(&kind.string()?);
                // Upstreams of the vendor's own API accept this tool.
                if is_run_by_vendor(tool)?.is_none() {
                    draft.vendors_tool(tool)?;
                }
                Ok(())
            }
            Some(_) | None => {
                draft.push(if offered.is_empty() { ",\"tools\":[" } else { "," });
                offered.push(self::tool(tool, draft)?);
                Ok(())
            }
        })?;
    }
    if !offered.is_empty() {
        draft.push("]");
        draft.shown.preamble();
    }
    if let Some(value) = body.get("tool_choice") {
        choice(&value, &offered, draft)?;
    }
    Ok(dropped)
}

/// Prefixes of tool types that clients run although the vendor describes them to the model. A version follows each
/// prefix.
const RUN_BY_CLIENTS: [&str; 5] =
    ["bash_", "text_editor_", "memory_", "tool_search_tool_bm25", "tool_search_tool_regex"];

/// Returns the tool's type if the vendor runs the tool. Such a tool costs money that the usage does not show.
pub(super) fn is_run_by_vendor(tool: &Members<'_, '_>) -> Result<Option<String>, ApiError> {
    // No tool of this API contains other tools.
    if tool.get("tools").is_some() {
        return Ok(Some("tools".to_owned()));
    }
    let Some(kind) = tool.get("type") else { return Ok(None) };
    let kind = kind.string()?;
    let is_version = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let of_vendor = |known: &&str| kind.strip_prefix(*known).is_some_and(is_version);
    let is_run_by_client = kind == "custom" || RUN_BY_CLIENTS.iter().any(of_vendor);
    Ok((!is_run_by_client).then(|| kind.into_owned()))
}

/// Notes a block that adds or removes a tool within a conversation. Only an upstream of this API accepts such a block.
/// A tool that the vendor runs is refused.
pub(super) fn change(block: &Members<'_, '_>, draft: &mut Draft) -> Result<(), ApiError> {
    known::check(block, known::PARTS, &["tool"])?;
    let value = block.require("tool")?;
    let tool = value.object()?;
    known::check(&tool, known::PARTS, &["definition"])?;
    let kind = tool.require("type")?;
    let definition = tool.get("definition");
    let definition = definition.as_ref().map(Value::object).transpose()?;
    definition.as_ref().map_or(Ok(()), known::check_tool)?;
    let is_of_client = match &definition {
        Some(definition) => is_run_by_vendor(definition)?.is_none(),
        None => kind.string()? == "tool_reference",
    };
    if !is_of_client {
        return Err(kind.error(Code::UnsupportedValue, "only tools that the client runs are supported"));
    }
    draft.shown.preamble();
    let place = block.require("type")?;
    draft.pass_only(block, || unsupported_kind(&place, "blocks", "'text'"))
}

/// Checks and writes a tool, and returns the tool's name.
fn tool(tool: &Members<'_, '_>, draft: &mut Draft) -> Result<String, ApiError> {
    let name_value = tool.require("name")?;
    let name = name(&name_value)?;
    let description = tool.get("description");
    Function {
        name: name_value.raw(),
        description: description.as_ref().map(Value::string_token).transpose()?,
        parameters: Some(tool.require("input_schema")?),
        strict: tool.get("strict"),
    }
    .write(draft)?;
    draft.shown_besides(tool, &["name", "description", "input_schema", "type", "strict", "cache_control"]);
    Ok(name)
}

/// Checks the tool choice, and writes it if there is a tool to choose.
fn choice(value: &Value<'_, '_>, offered: &[String], draft: &mut Draft) -> Result<(), ApiError> {
    let choice = value.object()?;
    let kind = choice.require("type")?.one_of(&["auto", "any", "tool", "none"])?;
    let json = match kind {
        "any" => "\"required\"".to_owned(),
        "tool" => {
            let chosen = choice.require("name")?;
            let name = name(&chosen)?;
            if !offered.is_empty() && !offered.contains(&name) {
                return Err(chosen.error(Code::InvalidValue, "no such tool is offered in 'tools'"));
            }
            format!(r#"{{"type":"function","function":{{"name":"{name}"}}}}"#)
        }
        auto_or_none => format!("\"{auto_or_none}\""),
    };
    let single = choice.get("disable_parallel_tool_use").map_or(Ok(false), |value| value.boolean())?;
    if !offered.is_empty() {
        draft.member("tool_choice", &json);
        if single {
            draft.member("parallel_tool_calls", "false");
        }
    }
    Ok(())
}
