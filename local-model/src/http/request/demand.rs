//! What a client demands of an answer's form: `tools`, `tool_choice`, `parallel_tool_calls` and `response_format`.

use serde_json::{Value, json};

use super::super::error::ApiError;
use crate::grammar::{Demand, MAX_SCHEMA_BYTES, Tool};

/// The tools that may be called, and whether one has to be.
pub(super) fn of_tools(
    tools: &[Value],
    choice: Option<&Value>,
    parallel: Option<bool>,
) -> Result<Demand, ApiError> {
    let tools: Vec<Tool> =
        tools.iter().enumerate().map(|(index, tool)| read_tool(index, tool)).collect::<Result<_, _>>()?;
    let parallel = parallel.unwrap_or(true);
    let choice = choice.filter(|choice| !choice.is_null());
    let demand = Demand { parallel, ..Demand::default() };
    match choice.and_then(Value::as_str) {
        Some("none") => Ok(demand),
        Some("auto") => Ok(Demand { tools, ..demand }),
        Some("required") if tools.is_empty() => {
            Err(ApiError::invalid("tool_choice", "A tool call is required, but there are no tools."))
        }
        Some("required") => Ok(Demand { tools, required: true, ..demand }),
        Some(other) => {
            let message = format!("tool_choice must be none, auto, required or a function, not {other}.");
            Err(ApiError::invalid("tool_choice", message))
        }
        None => match choice {
            None => Ok(Demand { tools, ..demand }),
            Some(named) => {
                let tools = vec![find(tools, named)?];
                Ok(Demand { tools, required: true, parallel: false, ..demand })
            }
        },
    }
}

/// The schema of the text, if it has to be JSON.
pub(super) fn of_text(format: Option<&Value>) -> Result<Option<Value>, ApiError> {
    let Some(format) = format.filter(|format| !format.is_null()) else { return Ok(None) };
    match format["type"].as_str() {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(json!({"type": "object"}))),
        Some("json_schema") => match format["json_schema"].get("schema") {
            Some(schema) if !schema.is_null() => Ok(Some(schema.clone())),
            Some(_) | None => {
                let message = "A response format of the type json_schema needs its schema.";
                Err(ApiError::invalid("response_format.json_schema.schema", message))
            }
        },
        Some(_) | None => {
            let message = "The type must be text, json_object or json_schema.";
            Err(ApiError::invalid("response_format.type", message))
        }
    }
}

/// Refuses schemas that are too large to be worked on.
pub(super) fn within_size(demand: &Demand, schema: Option<&Value>) -> Result<(), ApiError> {
    let size = |schema: &Value| schema.to_string().len();
    let tools: usize = demand.tools.iter().map(|tool| tool.name.len() + size(&tool.parameters)).sum();
    let message = format!("The schemas of a request may take {MAX_SCHEMA_BYTES} bytes.");
    if tools > MAX_SCHEMA_BYTES {
        return Err(ApiError::invalid("tools", message));
    }
    if tools + schema.map_or(0, size) > MAX_SCHEMA_BYTES {
        return Err(ApiError::invalid("response_format.json_schema.schema", message));
    }
    Ok(())
}

fn read_tool(index: usize, tool: &Value) -> Result<Tool, ApiError> {
    let param = |field: &str| format!("tools[{index}].{field}");
    if tool["type"] != "function" {
        return Err(ApiError::invalid(param("type"), "A tool must be of the type function."));
    }
    let name = tool["function"]["name"].as_str().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| ApiError::invalid(param("function.name"), "A function needs a name."))?;
    let parameters = match &tool["function"]["parameters"] {
        // A function without a list of parameters takes none.
        Value::Null => json!({"type": "object", "additionalProperties": false}),
        given => given.clone(),
    };
    Ok(Tool { index, name: name.to_owned(), parameters })
}

fn find(tools: Vec<Tool>, named: &Value) -> Result<Tool, ApiError> {
    let (Some("function"), Some(name)) = (named["type"].as_str(), named["function"]["name"].as_str()) else {
        let message = "tool_choice must be none, auto, required, or name a function.";
        return Err(ApiError::invalid("tool_choice", message));
    };
    let found = tools.into_iter().find(|tool| tool.name == name);
    found.ok_or_else(|| {
        ApiError::invalid("tool_choice.function.name", format!("There is no tool named {name}."))
    })
}
