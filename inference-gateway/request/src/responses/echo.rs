//! Members of the request that the response repeats.

use raw_json::{Members, Value};
use shared::{
    error::{ApiError, Code},
    json::Kind,
};

use crate::draft::MAX_TOOLS;

/// Name of a member of the response, the kind of request value that it repeats, and its default.
const REPEATED: [(&str, Kind, &str); 10] = [
    ("instructions", Kind::String, "null"),
    ("max_output_tokens", Kind::Number, "null"),
    ("metadata", Kind::Object, "{}"),
    ("parallel_tool_calls", Kind::Bool, "true"),
    ("prompt_cache_key", Kind::String, "null"),
    ("safety_identifier", Kind::String, "null"),
    ("temperature", Kind::Number, "1"),
    ("top_logprobs", Kind::Number, "0"),
    ("top_p", Kind::Number, "1"),
    ("user", Kind::String, "null"),
];

/// Maximum number of pairs in metadata, as at the vendor.
const MAX_METADATA: usize = 16;
/// Maximum length in characters of a name or value in metadata, as at the vendor.
const MAX_METADATA_NAME: usize = 64;
const MAX_METADATA_TEXT: usize = 512;

/// Checks the metadata. The answer repeats it, and no upstream gets it. Only an object is repeated.
pub(super) fn check_metadata(members: &Members<'_, '_>) -> Result<(), ApiError> {
    let metadata = members.get("metadata").filter(|metadata| metadata.kind() == Kind::Object);
    let Some(metadata) = metadata else { return Ok(()) };
    let pairs = metadata.object()?;
    if pairs.iter().nth(MAX_METADATA).is_some() {
        let problem = format!("must have at most {MAX_METADATA} members");
        return Err(metadata.error(Code::ObjectAboveMaxProperties, &problem));
    }
    for (name, value) in pairs.iter() {
        if name.chars().count() > MAX_METADATA_NAME {
            let problem = format!("a name must have at most {MAX_METADATA_NAME} characters");
            return Err(metadata.error(Code::InvalidValue, &problem));
        }
        if value.string()?.chars().count() > MAX_METADATA_TEXT {
            let problem = format!("must have at most {MAX_METADATA_TEXT} characters");
            return Err(value.error(Code::StringAboveMaxLength, &problem));
        }
    }
    Ok(())
}

/// Members whose values are the same in every response.
const FIXED: &str = r#","previous_response_id":null,"background":false,"frequency_penalty":0,"presence_penalty":0,"max_tool_calls":null,"service_tier":"default","store":false,"truncation":"disabled""#;

/// Returns the members, each with a comma before it. All are on one line, as an event of a stream needs.
pub(super) fn echo(members: &Members<'_, '_>) -> Result<String, ApiError> {
    let mut echo = String::from(FIXED);
    for (name, kind, otherwise) in REPEATED {
        put(name, repeated(members.get(name), kind).unwrap_or(otherwise), &mut echo);
    }
    put("tools", &tools(members)?, &mut echo);
    let choice = members.get("tool_choice");
    put("tool_choice", choice.as_ref().map_or("\"auto\"", Value::raw), &mut echo);
    let of = |object: &str, name: &str, kind: Kind, otherwise: &str| {
        let value = members.get(object);
        let object = value.as_ref().and_then(|value| value.object().ok());
        let repeated = object.as_ref().and_then(|object| repeated(object.get(name), kind));
        repeated.unwrap_or(otherwise).to_owned()
    };
    let format = of("text", "format", Kind::Object, r#"{"type":"text"}"#);
    let verbosity = of("text", "verbosity", Kind::String, "\"medium\"");
    put("text", &format!(r#"{{"format":{format},"verbosity":{verbosity}}}"#), &mut echo);
    let effort = of("reasoning", "effort", Kind::String, "null");
    let summary = of("reasoning", "summary", Kind::String, "null");
    put("reasoning", &format!(r#"{{"effort":{effort},"summary":{summary}}}"#), &mut echo);
    // The text is kept until the request ends.
    echo.shrink_to_fit();
    Ok(echo)
}

/// Members of a function that clients' types require, which are `null` if the request has none.
const OF_FUNCTIONS: [&str; 3] = ["description", "parameters", "strict"];

/// Returns the offered tools as spelled, with all members that clients require of a function.
fn tools(members: &Members<'_, '_>) -> Result<String, ApiError> {
    let mut tools = String::from("[");
    if let Some(list) = members.get("tools") {
        list.each_if_any(MAX_TOOLS, |value| {
            let tool = value.object()?;
            if tools.len() > 1 {
                tools.push(',');
            }
            let is_function = tool.require("type")?.string()? == "function";
            let absent = OF_FUNCTIONS.iter().filter(|name| is_function && tool.even_null(name).is_none());
            let (before, brace) = value.raw().split_at(value.raw().len() - 1);
            tools.push_str(before);
            absent.for_each(|name| tools.extend([",\"", *name, "\":null"]));
            tools.push_str(brace);
            Ok(())
        })?;
    }
    tools.push(']');
    Ok(tools)
}

/// Returns the value as spelled, if it is of this kind.
fn repeated<'a>(value: Option<Value<'a, '_>>, kind: Kind) -> Option<&'a str> {
    value.filter(|value| value.kind() == kind).map(|value| value.raw())
}

/// Writes a member without line breaks. JSON allows them only between tokens, where they have no meaning.
fn put(name: &str, json: &str, echo: &mut String) {
    echo.push_str(",\"");
    echo.push_str(name);
    echo.push_str("\":");
    if memchr::memchr2(b'\n', b'\r', json.as_bytes()).is_none() {
        echo.push_str(json);
    } else {
        echo.extend(json.split(['\n', '\r']));
    }
}
