//! Messages as a prompt: the model's chat template, rendered the way its training rendered it.

use minijinja::{Environment, Error, ErrorKind, Value, context, syntax::SyntaxConfig};
use serde::Serialize;
use serde_json::ser::Formatter;

use crate::weights::LoadError;

/// What a prompt is made of. Values keep the order in which the client wrote them, since the model reads it.
#[derive(Clone, Debug)]
pub(crate) struct Conversation {
    pub(crate) messages: Value,
    pub(crate) tools: Option<Value>,
    pub(crate) reasoning_effort: Option<String>,
}

/// The compiled chat template.
pub(crate) struct Template(Environment<'static>);

const NAME: &str = "chat";

impl Template {
    /// From a template, and what it may write at the beginning and the end of a text.
    pub(crate) fn new(source: String, (begin, end): (String, String)) -> Result<Self, LoadError> {
        let mut environment = Environment::new();
        // Chat templates are written for Python's Jinja with these two settings, and call methods of Python's types.
        environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", refuse);
        environment.add_global("bos_token", begin);
        environment.add_global("eos_token", end);
        environment.add_template_owned(NAME, source)?;
        Ok(Self(environment))
    }

    /// Whether the model can be told how hard to think.
    pub(crate) fn takes_effort(&self) -> bool {
        self.reads("reasoning_effort") || self.thinks_unasked()
    }

    /// Whether the model thinks unless it is told not to.
    pub(crate) fn thinks_unasked(&self) -> bool {
        self.reads("enable_thinking")
    }

    fn reads(&self, variable: &str) -> bool {
        self.0
            .get_template(NAME)
            .is_ok_and(|template| template.undeclared_variables(false).contains(variable))
    }

    /// The prompt up to where the assistant's answer begins.
    pub(crate) fn render(&self, conversation: &Conversation) -> Result<String, Error> {
        let Conversation { messages, tools, reasoning_effort } = conversation;
        // Absent is not null: a template may ask whether a value is defined.
        let defined = |value: &Option<Value>| value.clone().unwrap_or(Value::UNDEFINED);
        self.0.get_template(NAME)?.render(context! {
            messages,
            tools => defined(tools),
            reasoning_effort => reasoning_effort.as_deref().map_or(Value::UNDEFINED, Value::from),
            enable_thinking => reasoning_effort.as_deref().map_or(Value::UNDEFINED, |effort| (effort != "none").into()),
            add_generation_prompt => true,
        })
    }
}

/// How templates refuse a conversation that their model was not trained for.
fn refuse(reason: String) -> Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, reason))
}

/// JSON as Python's `json.dumps(value, ensure_ascii=False)` spells it, which is what templates expect of `tojson`.
fn to_json(value: &Value) -> Result<String, Error> {
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, "a value is missing"));
    }
    let failed = |error: &dyn std::error::Error| Error::new(ErrorKind::BadSerialization, error.to_string());
    let mut json = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut json, PythonSpacing);
    value.serialize(&mut serializer).map_err(|error| failed(&error))?;
    String::from_utf8(json).map_err(|error| failed(&error))
}

/// A blank after every comma and colon.
struct PythonSpacing;

impl Formatter for PythonSpacing {
    fn begin_array_value<W: std::io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: std::io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: std::io::Write + ?Sized>(&mut self, writer: &mut W) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    #[test]
    fn prompts_equal_those_of_python_s_jinja() {
        let template = Model::shipped().unwrap().template;
        for case in crate::reference::cases() {
            assert_eq!(template.render(&case.conversation).unwrap(), case.prompt);
        }
    }

    #[test]
    fn json_is_spelled_as_python_spells_it() {
        let value: Value = serde_json::from_str(r#"{"b":[1,2.5,null,true],"a":"<é>"}"#).unwrap();
        assert_eq!(to_json(&value).unwrap(), r#"{"b": [1, 2.5, null, true], "a": "<é>"}"#);
    }
}
