//! Tools and the format of the answer: `tools`, `tool_choice`, `parallel_tool_calls`, `response_format`.

use raw_json::{Members, Value};
use shared::{
    error::{ApiError, Code},
    json::Kind,
};

use crate::draft::{Draft, Function, MAX_TOOLS, json_schema, name};

/// Kind of tool choice that lets the model call only some tools, and the member that lists them.
const ALLOWED_TOOLS: &str = "allowed_tools";

/// Checks and writes the offered tools and the choice between them.
pub(super) fn tools(body: &Members<'_, '_>, draft: &mut Draft) -> Result<(), ApiError> {
    let choice = body.get("tool_choice");
    let mut offered = Vec::new();
    if let Some(tools) = body.get("tools") {
        let allowed = choice.as_ref().map(allowed).transpose()?.flatten();
        draft.shown.preamble();
        draft.name("tools");
        offered = write_tools(&tools, allowed.as_deref(), draft)?;
    }
    let needs_tools = |value: &Value<'_, '_>| {
        if offered.is_empty() {
            return Err(value.error(Code::InvalidValue, "is only allowed with 'tools'"));
        }
        Ok(())
    };
    if let Some(choice) = choice {
        needs_tools(&choice)?;
        tool_choice(&choice, &offered, draft)?;
    }
    if let Some(parallel) = body.get("parallel_tool_calls") {
        parallel.boolean()?;
        needs_tools(&parallel)?;
        draft.member("parallel_tool_calls", parallel.raw());
    }
    Ok(())
}

/// Checks all tools, and writes those that are allowed. Returns the names of all tools.
fn write_tools(
    tools: &Value<'_, '_>,
    allowed: Option<&[String]>,
    draft: &mut Draft,
) -> Result<Vec<String>, ApiError> {
    let mut offered = Vec::new();
    let mut before = "[";
    tools.objects(MAX_TOOLS, |tool| {
        let is_hidden = match allowed {
            Some(allowed) => !allowed.contains(&function_name(tool, |_| true)?),
            None => false,
        };
        if is_hidden {
            offered.push(self::tool(tool, &mut Draft::new(0))?);
        } else {
            draft.push(before);
            before = ",";
            offered.push(self::tool(tool, draft)?);
        }
        Ok(())
    })?;
    draft.push("]");
    Ok(offered)
}

/// Checks and writes a tool, and returns the tool's name.
fn tool(tool: &Members<'_, '_>, draft: &mut Draft) -> Result<String, ApiError> {
    tool.require("type")?.one_of(&["function"])?;
    let function = tool.require("function")?;
    let function = function.object()?;
    let name_value = function.require("name")?;
    let name = name(&name_value)?;
    let description = function.get("description");
    Function {
        name: name_value.raw(),
        description: description.as_ref().map(Value::string_token).transpose()?,
        parameters: function.get("parameters"),
        strict: function.get("strict"),
    }
    .write(draft)?;
    Ok(name)
}

/// Checks and writes the choice of tools. For a choice of allowed tools, only its mode is written, and all other tools
/// are left out of the request. So even servers that do not know this kind of choice follow it.
fn tool_choice(choice: &Value<'_, '_>, offered: &[String], draft: &mut Draft) -> Result<(), ApiError> {
    if choice.kind() == Kind::String {
        choice.one_of(&["none", "auto", "required"])?;
        draft.member("tool_choice", choice.raw());
        return Ok(());
    }
    if choice.kind() != Kind::Object {
        return Err(choice.wrong_type("a string or an object"));
    }
    let is_offered = |name: &str| offered.iter().any(|known| known == name);
    let members = choice.object()?;
    draft.name("tool_choice");
    if members.require("type")?.one_of(&["function", ALLOWED_TOOLS])? == ALLOWED_TOOLS {
        let allowed = members.require(ALLOWED_TOOLS)?;
        let allowed = allowed.object()?;
        let mode = allowed.require("mode")?.one_of(&["auto", "required"])?;
        allowed.require("tools")?.objects(MAX_TOOLS, |tool| function_name(tool, is_offered).map(drop))?;
        draft.push(&format!("\"{mode}\""));
    } else {
        let name = function_name(&members, is_offered)?;
        // A name has no characters that JSON would escape.
        draft.push(&format!("{{\"type\":\"function\",\"function\":{{\"name\":\"{name}\"}}}}"));
    }
    Ok(())
}

/// Returns the names of the tools that a choice allows; `None` for other kinds of choice.
fn allowed(choice: &Value<'_, '_>) -> Result<Option<Vec<String>>, ApiError> {
    if choice.kind() != Kind::Object {
        return Ok(None);
    }
    let members = choice.object()?;
    if members.require("type")?.string()? != ALLOWED_TOOLS {
        return Ok(None);
    }
    let allowed = members.require(ALLOWED_TOOLS)?;
    let mut names = Vec::new();
    allowed.object()?.require("tools")?.objects(MAX_TOOLS, |tool| {
        names.push(function_name(tool, |_| true)?);
        Ok(())
    })?;
    Ok(Some(names))
}

/// Returns the name in `{"type":"function","function":{"name":…}}`. The name must be known.
fn function_name(tool: &Members<'_, '_>, is_known: impl Fn(&str) -> bool) -> Result<String, ApiError> {
    tool.require("type")?.one_of(&["function"])?;
    let function = tool.require("function")?;
    let function = function.object()?;
    let name = function.require("name")?;
    let text = crate::draft::name(&name)?;
    if !is_known(&text) {
        return Err(name.error(Code::InvalidValue, "no such function is offered in 'tools'"));
    }
    Ok(text)
}

/// Checks and writes the requested format of the answer.
pub(super) fn response_format(body: &Members<'_, '_>, draft: &mut Draft) -> Result<(), ApiError> {
    let Some(format) = body.get("response_format") else { return Ok(()) };
    let format = format.object()?;
    let kind = format.require("type")?.one_of(&["text", "json_object", "json_schema"])?;
    draft.shown.preamble();
    draft.name("response_format");
    draft.push("{\"type\":\"");
    draft.push(kind);
    draft.push("\"");
    if kind == "json_schema" {
        let described = format.require("json_schema")?;
        let described = described.object()?;
        draft.name("json_schema");
        json_schema(&described, None, draft)?;
    }
    draft.push("}");
    Ok(())
}
