//! The form that a client asks of an answer: `tools`, `tool_choice`, `parallel_tool_calls` and `response_format`.

use serde_json::{Value, json};
use shared::error::{ApiError, Code};

use crate::{
    grammar::{MAX_SCHEMA_BYTES, OutputFormat},
    prompt::Tool,
};

/// Reads the tools of a request.
pub(super) fn tools(tools: Option<&[Value]>) -> Result<Vec<Tool>, ApiError> {
    tools.into_iter().flatten().enumerate().map(|(index, tool)| read_tool(index, tool)).collect()
}

fn read_tool(index: usize, tool: &Value) -> Result<Tool, ApiError> {
    let wrong = |field: &str, message| invalid(format!("tools[{index}].{field}"), message);
    if tool["type"] != "function" {
        return Err(wrong("type", "A tool must be of the type function."));
    }
    let text =
        |field: &str| tool["function"][field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let parameters = match &tool["function"]["parameters"] {
        // A function without a list of parameters takes none.
        Value::Null => json!({"type": "object", "additionalProperties": false}),
        given => given.clone(),
    };
    let name = text("name").ok_or_else(|| wrong("function.name", "A function needs a name."))?;
    Ok(Tool { index, name, description: text("description"), parameters })
}

/// Reads the form of an answer that may call `tools`.
pub(super) fn read(
    tools: Vec<Tool>,
    choice: Option<&Value>,
    parallel: Option<bool>,
    response_format: Option<&Value>,
) -> Result<OutputFormat, ApiError> {
    let mut format = OutputFormat {
        parallel: parallel.unwrap_or(true),
        schema: schema(response_format)?,
        ..OutputFormat::default()
    };
    match choice {
        Some(Value::String(choice)) => match choice.as_str() {
            "none" => {}
            "auto" => format.tools = tools,
            "required" if !tools.is_empty() => (format.tools, format.required) = (tools, true),
            "required" => {
                return Err(invalid("tool_choice", "A tool call is required, but there are no tools."));
            }
            _ => {
                return Err(invalid(
                    "tool_choice",
                    "tool_choice must be none, auto, required or a function.",
                ));
            }
        },
        None | Some(Value::Null) => format.tools = tools,
        Some(named) => {
            let found = tools.into_iter().find(|tool| named["function"]["name"] == *tool.name);
            let found = found.filter(|_| named["type"] == "function");
            let missing = || invalid("tool_choice.function.name", "There is no tool of this name.");
            format.tools = vec![found.ok_or_else(missing)?];
            (format.required, format.parallel) = (true, false);
        }
    }
    check_size(&format)?;
    Ok(format)
}

/// Reads the schema of the text, if it has to be JSON.
fn schema(format: Option<&Value>) -> Result<Option<Value>, ApiError> {
    let Some(format) = format.filter(|format| !format.is_null()) else { return Ok(None) };
    match format["type"].as_str() {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(json!({"type": "object"}))),
        Some("json_schema") => {
            let schema = format["json_schema"].get("schema").filter(|schema| !schema.is_null());
            let message = "A response format of the type json_schema needs its schema.";
            schema.cloned().map(Some).ok_or_else(|| invalid("response_format.json_schema.schema", message))
        }
        Some(_) | None => {
            let message = "The type must be text, json_object or json_schema.";
            Err(invalid("response_format.type", message))
        }
    }
}

/// Refuses schemas that are too large to be worked on.
fn check_size(format: &OutputFormat) -> Result<(), ApiError> {
    let size = |schema: &Value| schema.to_string().len();
    let tools: usize = format.tools.iter().map(|tool| tool.name.len() + size(&tool.parameters)).sum();
    let all = tools + format.schema.as_ref().map_or(0, size);
    if all <= MAX_SCHEMA_BYTES {
        return Ok(());
    }
    let param = if tools > MAX_SCHEMA_BYTES { "tools" } else { "response_format.json_schema.schema" };
    Err(invalid(param, "The schemas of a request may take 131072 bytes."))
}

fn invalid(param: impl Into<String>, message: &'static str) -> ApiError {
    ApiError::at(Code::InvalidValue, param, message)
}
