//! Tools and the format of the answer, as upstreams read them.

use raw_json::{Members, Value};
use shared::{
    error::{ApiError, Code},
    json::Kind,
};
use token_bounds::{MAX_DEPTH, TooDeep};

use super::{body::Draft, places::Mark};
use crate::names::{
    dropped::{is_of_name, plain},
    known::check_depth,
};

/// Maximum number of tools in a request. Agents with several tool servers offer well over a hundred.
pub(crate) const MAX_TOOLS: usize = 512;
/// Maximum number of characters in the name of a function or a schema.
pub(crate) const MAX_NAME: usize = 128;

/// A function that the model may call, before its checks.
pub(crate) struct Function<'v, 'a, 'p> {
    /// Name as a JSON string, already checked.
    pub(crate) name: &'v str,
    /// Description as a JSON string, already checked.
    pub(crate) description: Option<&'v str>,
    pub(crate) parameters: Option<Value<'a, 'p>>,
    /// Whether the arguments must match the schema.
    pub(crate) strict: Option<Value<'a, 'p>>,
}

impl Function<'_, '_, '_> {
    pub(crate) fn write(&self, draft: &mut Draft) -> Result<(), ApiError> {
        draft.open_function(self.name);
        if let Some(description) = self.description {
            draft.shown.maybe_json(description);
            draft.member("description", description);
        }
        if let Some(parameters) = &self.parameters {
            schema(parameters, "parameters", draft)?;
        }
        if let Some(strict) = &self.strict {
            strict.boolean()?;
            draft.member("strict", strict.raw());
        }
        draft.push("}}");
        Ok(())
    }
}

impl Draft {
    /// Adds to the prompt's count a tool that clients run but the vendor describes to the model. Upstreams of other
    /// APIs do not get the tool.
    pub(crate) fn vendors_tool(&mut self, tool: &Members<'_, '_>) -> Result<(), ApiError> {
        self.shown.vendors_tool();
        tool.iter().try_for_each(|(_, value)| {
            check_depth(&value)?;
            self.shown.maybe_json(value.raw());
            Ok(())
        })
    }

    /// Adds the members of a tool to the prompt's count, except the members in `counted`. The added members are not
    /// translated, but a vendor that gets the tool unchanged may show them to the model.
    pub(crate) fn shown_besides(&mut self, tool: &Members<'_, '_>, counted: &[&str]) {
        for (_, value) in tool.iter().filter(|(name, _)| !counted.contains(name)) {
            self.shown.maybe_json(value.raw());
        }
    }

    /// Writes the beginning of a tool up to its name, a JSON string.
    pub(crate) fn open_function(&mut self, name: &str) {
        self.shown.tool();
        self.shown.text(name);
        self.push("{\"type\":\"function\",\"function\":{\"name\":");
        self.push(name);
    }

    /// Writes a call of an earlier answer. `id`, `name` and `arguments` are JSON strings; the arguments were counted
    /// already.
    pub(crate) fn call(&mut self, id: &str, name: &str, arguments: &str) {
        self.shown.tool();
        self.shown.text(id);
        self.shown.text(name);
        self.push("{\"id\":");
        let start = self.len();
        self.push(id);
        let id = start..self.len();
        self.push(",\"type\":\"function\",\"function\":{\"name\":");
        self.push(name);
        self.member("arguments", arguments);
        self.push("}");
        self.marks.push(Mark::Call { id, end: self.len() });
        self.push("}");
    }
}

impl Draft {
    /// Writes the id of the call that a tool answers, a JSON string.
    pub(crate) fn answered_call(&mut self, id: &str) {
        self.shown_member("tool_call_id", id);
        self.marks.push(Mark::Answer(self.len() - id.len()..self.len()));
    }
}

/// Checks and writes a requested format of the answer. If the schema has no name, `title` is used.
pub(crate) fn json_schema(
    described: &Members<'_, '_>,
    title: Option<&str>,
    draft: &mut Draft,
) -> Result<(), ApiError> {
    draft.push("{\"name\":");
    if let Some(title) = title {
        draft.push(title);
    } else {
        let title = described.require("name")?;
        name(&title)?;
        draft.push(title.raw());
    }
    if let Some(description) = described.get("description") {
        description.string_token()?;
        show_json(&description, draft)?;
        draft.member("description", description.raw());
    }
    schema(&described.require("schema")?, "schema", draft)?;
    if let Some(strict) = described.get("strict") {
        strict.boolean()?;
        draft.member("strict", strict.raw());
    }
    draft.push("}");
    Ok(())
}

fn schema(value: &Value<'_, '_>, name: &str, draft: &mut Draft) -> Result<(), ApiError> {
    if value.kind() != Kind::Object {
        return Err(value.wrong_type("an object"));
    }
    show_json(value, draft)?;
    draft.member(name, value.raw());
    Ok(())
}

/// Adds to the prompt's count a value that templates will write as JSON in their own way.
fn show_json(value: &Value<'_, '_>, draft: &mut Draft) -> Result<(), ApiError> {
    draft.shown.json(value.raw()).map_err(|TooDeep| {
        value.error(Code::InvalidValue, &format!("is nested deeper than {MAX_DEPTH} levels"))
    })
}

/// Reads the name of a function or a schema: `[a-zA-Z0-9_-]{1,128}`.
pub(crate) fn name(value: &Value<'_, '_>) -> Result<String, ApiError> {
    value.filled_string_token()?;
    let name = value.string()?;
    if name.chars().count() > MAX_NAME {
        return Err(
            value.error(Code::StringAboveMaxLength, &format!("must have at most {MAX_NAME} characters"))
        );
    }
    if !name.bytes().all(is_of_name) {
        return Err(value.error(Code::InvalidValue, "must consist of a-z, A-Z, 0-9, '_' and '-'"));
    }
    Ok(name.into_owned())
}

/// Makes the error for a kind of value that is not supported. `what` names values of this sort in the error.
pub(crate) fn unsupported_kind(kind: &Value<'_, '_>, what: &str, supported: &str) -> ApiError {
    let given = kind.string().map(|kind| plain(&kind)).unwrap_or_default();
    let problem = format!("{what} of the type '{given}' are not supported; send {supported}");
    kind.error(Code::UnsupportedValue, &problem)
}
