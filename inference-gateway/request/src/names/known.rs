//! Names that servers know, and lookalikes that a server might take for them.

use std::borrow::Cow;

use raw_json::{Members, Value, is_deeper_than};
use shared::{
    error::{ApiError, Code},
    json::Kind,
};
use token_bounds::MAX_DEPTH;

/// Member names that the newer APIs use in messages, items, parts and sources.
pub(crate) const PARTS: &[&str] = &[
    "action",
    "annotations",
    "arguments",
    "cache_control",
    "call_id",
    "caller",
    "citations",
    "clear_at",
    "content",
    "context",
    "data",
    "definition",
    "detail",
    "encrypted_content",
    "execution",
    "file_data",
    "file_id",
    "file_url",
    "filename",
    "id",
    "image_url",
    "input",
    "is_error",
    "media_type",
    "name",
    "namespace",
    "output",
    "output_config",
    "phase",
    "prompt_cache_breakpoint",
    "reasoning",
    "refusal",
    "role",
    "signature",
    "source",
    "status",
    "summary",
    "text",
    "thinking",
    "title",
    "tool",
    "tool_changes",
    "tool_name",
    "tool_use_id",
    "tools",
    "transformations",
    "type",
    "url",
];

/// Members of tools that clients run, as the newer APIs document them.
pub(crate) const TOOLS: &[&str] = &[
    "allowed_callers",
    "cache_control",
    "defer_loading",
    "description",
    "display_height_px",
    "display_number",
    "display_width_px",
    "eager_input_streaming",
    "enable_zoom",
    "environment",
    "execution",
    "format",
    "input_examples",
    "input_schema",
    "max_characters",
    "name",
    "output_schema",
    "parameters",
    "strict",
    "tools",
    "type",
];

/// Finds the known name that differs from this one only in case. Servers that ignore case would confuse them.
pub(crate) fn lookalike<'k>(name: &str, known: impl IntoIterator<Item = &'k &'k str>) -> Option<&'k str> {
    match folded(name) {
        // All known names are lower case.
        Cow::Borrowed(_) => None,
        Cow::Owned(folded) => known.into_iter().find(|known| ***known == *folded).copied(),
    }
}

/// Folds the case of a name, through upper case first: letters such as `ſ` have no other lower case.
pub(crate) fn folded(name: &str) -> Cow<'_, str> {
    if !name.bytes().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii()) {
        return name.into();
    }
    name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// Refuses a member whose name differs from a known one only in case.
pub(crate) fn refuse_lookalike<'k>(
    name: &str,
    value: &Value<'_, '_>,
    known: impl IntoIterator<Item = &'k &'k str>,
) -> Result<(), ApiError> {
    lookalike(name, known).map_or(Ok(()), |known| {
        Err(value.error(Code::UnknownParameter, &format!("the name is spelled '{known}'")))
    })
}

/// Refuses a type that differs from a supported one only in case.
pub(crate) fn refuse_lookalike_type(kind: &Value<'_, '_>, known: &[&str]) -> Result<(), ApiError> {
    lookalike(&kind.string()?, known).map_or(Ok(()), |known| {
        Err(kind.error(Code::UnsupportedValue, &format!("the type is spelled '{known}'")))
    })
}

/// Checks the members of an object that may be passed on: their names, and the depth of those not in `read`.
pub(crate) fn check(members: &Members<'_, '_>, known: &[&str], read: &[&str]) -> Result<(), ApiError> {
    members.iter().try_for_each(|(name, value)| {
        refuse_lookalike(name, &value, known)?;
        if read.contains(&name) { Ok(()) } else { check_depth(&value) }
    })
}

/// Checks the members of a tool that may be passed on.
pub(crate) fn check_tool(tool: &Members<'_, '_>) -> Result<(), ApiError> {
    check(tool, TOOLS, &[])
}

/// Refuses a value that is nested too deeply for the parsers of upstreams.
pub(crate) fn check_depth(value: &Value<'_, '_>) -> Result<(), ApiError> {
    match value.kind() {
        Kind::Array | Kind::Object if is_deeper_than(value.raw(), MAX_DEPTH) => {
            Err(value.error(Code::InvalidValue, &format!("is nested deeper than {MAX_DEPTH} levels")))
        }
        Kind::Array | Kind::Object | Kind::Null | Kind::Bool | Kind::Number | Kind::String => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_differs_in_case_alone_is_found_in_any_alphabet() {
        let known = |name: &str| lookalike(name, &["store", "max_output_tokens", "messages", "file_id"]);
        for (name, found) in [
            ("STORE", Some("store")),
            ("\u{17f}tore", Some("store")),
            ("Max_Output_To\u{212a}ens", Some("max_output_tokens")),
            ("max_output_to\u{212a}en\u{17f}", Some("max_output_tokens")),
            ("me\u{df}ages", Some("messages")),
            ("\u{fb01}le_id", Some("file_id")),
            ("store", None),
            ("Stores", None),
            ("st\u{f6}re", None),
        ] {
            assert_eq!(known(name), found, "{name}");
        }
    }
}
