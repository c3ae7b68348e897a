//! The offered tools as functions of a chat. The tools are functions, custom tools, and namespaces with tools of both
//! kinds.

use raw_json::{Members, Value};
use reply::{ToolName, ToolNames};
use shared::{
    error::{ApiError, Code},
    json::Kind,
};

use super::passage::is_run_by_vendor;
use crate::{
    draft::{Draft, Function, MAX_NAME, MAX_TOOLS, name},
    names::dropped::DroppedNames,
};

/// Number of digits of the digest that makes a name short or unique.
const DIGEST_DIGITS: usize = 16;

/// Schema of a function that replaces a custom tool: its only argument is a text.
const ONE_TEXT: &str = r#"{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}"#;

pub(super) struct Tools {
    choice: Choice,
    names: ToolNames,
    dropped: DroppedNames,
    /// Names of the functions that upstreams get, each with the client's name for the tool.
    offered: Vec<OfferedTool>,
    /// Number of tools in all lists, including the dropped tools.
    listed: usize,
    before: &'static str,
}

struct OfferedTool {
    flat: String,
    tool: Tool,
}

/// A tool, as the client names it.
#[derive(Clone, PartialEq, Eq)]
struct Tool {
    namespace: Option<String>,
    name: String,
}

enum Choice {
    Unset,
    Mode(&'static str),
    One(Tool),
    /// A mode, and the tools that the model may call.
    Allowed(&'static str, Vec<Tool>),
}

impl Tools {
    /// Reads the tool choice. This must be done before the tools are read.
    pub(super) fn new(body: &Members<'_, '_>, draft: &mut Draft) -> Result<Self, ApiError> {
        Ok(Self {
            choice: Choice::read(body, draft)?,
            names: ToolNames::default(),
            dropped: DroppedNames::default(),
            offered: Vec::new(),
            listed: 0,
            before: ",\"tools\":[",
        })
    }

    /// Checks the tools of a list, and writes those that the model may call.
    pub(super) fn offer(&mut self, list: &Value<'_, '_>, draft: &mut Draft) -> Result<(), ApiError> {
        list.objects_if_any(MAX_TOOLS, |tool| {
            self.tool(tool, None, draft)?;
            if self.listed > MAX_TOOLS {
                return Err(too_many(list));
            }
            Ok(())
        })
        .map(drop)
    }

    fn tool(
        &mut self,
        tool: &Members<'_, '_>,
        namespace: Option<&str>,
        draft: &mut Draft,
    ) -> Result<(), ApiError> {
        let kind = tool.require("type")?;
        match (&*kind.string()?, namespace) {
            ("function", _) => self.function(tool, namespace, draft),
            ("custom", _) => self.custom(tool, namespace, draft),
            ("namespace", None) => {
                let space = name(&tool.require("name")?)?;
                draft.shown_besides(tool, &["type", "tools"]);
                let tools = tool.require("tools")?;
                let left = MAX_TOOLS.saturating_sub(self.listed);
                if tools.objects_if_any(MAX_TOOLS, |_| Ok(()))? > left {
                    return Err(too_many(&tools));
                }
                tools.objects_if_any(MAX_TOOLS, |tool| self.tool(tool, Some(&space), draft)).map(drop)
            }
            (_, None) => {
                self.listed += 1;
                self.dropped.add(&kind.string()?);
                // Upstreams of the vendor's own API accept this tool.
                if is_run_by_vendor(tool)?.is_none() {
                    draft.vendors_tool(tool)?;
                }
                Ok(())
            }
            (_, Some(_)) => Err(kind.error(Code::InvalidValue, "must be 'function' or 'custom'")),
        }
    }

    fn function(
        &mut self,
        tool: &Members<'_, '_>,
        namespace: Option<&str>,
        draft: &mut Draft,
    ) -> Result<(), ApiError> {
        let name = name(&tool.require("name")?)?;
        let description = tool.get("description");
        let description = description.as_ref().map(Value::string_token).transpose()?;
        let (parameters, strict) = (tool.get("parameters"), tool.get("strict"));
        draft.shown_besides(tool, &["type", "name", "description", "parameters", "strict"]);
        self.write(Tool { namespace: namespace.map(str::to_owned), name }, false, draft, |flat, draft| {
            Function { name: flat, description, parameters, strict }.write(draft)
        })
    }

    /// Writes a custom tool as a function whose only argument is a text. Upstreams do not support grammars, so the
    /// description includes the grammar.
    fn custom(
        &mut self,
        tool: &Members<'_, '_>,
        namespace: Option<&str>,
        draft: &mut Draft,
    ) -> Result<(), ApiError> {
        let name = name(&tool.require("name")?)?;
        draft.shown_besides(tool, &["type", "name", "description", "format"]);
        let description = tool.get("description");
        let mut texts: Vec<&str> = Vec::new();
        texts.extend(description.as_ref().map(Value::string_token).transpose()?);
        if let Some(format) = tool.get("format") {
            let format = format.object()?;
            if format.require("type")?.one_of(&["text", "grammar"])? == "grammar" {
                texts.push(match format.require("syntax")?.one_of(&["lark", "regex"])? {
                    "lark" => r#""The input follows this Lark grammar:""#,
                    _ => r#""The input matches this regular expression:""#,
                });
                texts.push(format.require("definition")?.string_token()?);
            }
        }
        self.write(Tool { namespace: namespace.map(str::to_owned), name }, true, draft, |flat, draft| {
            draft.open_function(flat);
            if !texts.is_empty() {
                draft.joined("description", &texts);
            }
            // The only possible error is that the schema is nested too deeply, and this schema is not.
            let _ = draft.shown.json(ONE_TEXT);
            draft.member("parameters", ONE_TEXT);
            draft.push("}}");
            Ok(())
        })
    }

    /// Notes a tool, and writes it with `write` unless the choice excludes it.
    fn write(
        &mut self,
        tool: Tool,
        is_custom: bool,
        draft: &mut Draft,
        write: impl FnOnce(&str, &mut Draft) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        self.listed += 1;
        let is_taken = |flat: &str| self.offered.iter().any(|offered| offered.flat == flat);
        let flat = flat_name(tool.namespace.as_deref(), &tool.name, is_taken);
        if is_custom || tool.namespace.is_some() {
            self.names.add(ToolName {
                flat: flat.clone(),
                namespace: tool.namespace.as_deref().map(quoted),
                name: quoted(&tool.name),
                is_custom,
            });
        }
        let is_hidden = match &self.choice {
            Choice::Allowed(_, allowed) => !allowed.contains(&tool),
            Choice::Unset | Choice::Mode(_) | Choice::One(_) => false,
        };
        if is_hidden {
            // The tool is counted nevertheless, since a body that is passed on contains it.
            let mut hidden = Draft::new(0);
            write(&quoted(&flat), &mut hidden)?;
            draft.shown.add(&hidden.shown);
        } else {
            draft.push(self.before);
            self.before = ",";
            write(&quoted(&flat), draft)?;
        }
        self.offered.push(OfferedTool { flat, tool });
        Ok(())
    }

    /// Ends the list of tools and writes the tool choice. Without tools, nothing is written.
    pub(super) fn finish(
        self,
        body: &Members<'_, '_>,
        draft: &mut Draft,
    ) -> Result<(ToolNames, DroppedNames), ApiError> {
        let parallel = body.get("parallel_tool_calls");
        let parallel = parallel.map(|value| value.boolean()).transpose()?;
        if self.before != "," {
            return Ok((self.names, self.dropped));
        }
        draft.push("]");
        draft.shown.preamble();
        match &self.choice {
            Choice::Unset => {}
            Choice::Mode(mode) | Choice::Allowed(mode, _) => draft.member("tool_choice", &quoted(mode)),
            Choice::One(chosen) => {
                let flat = self.offered.iter().find(|offered| offered.tool == *chosen);
                let Some(OfferedTool { flat, .. }) = flat else {
                    let choice = body.require("tool_choice")?;
                    return Err(choice.error(Code::InvalidValue, "no such tool is offered in 'tools'"));
                };
                let choice = format!(r#"{{"type":"function","function":{{"name":"{flat}"}}}}"#);
                draft.member("tool_choice", &choice);
            }
        }
        if let Some(parallel) = parallel {
            draft.member("parallel_tool_calls", if parallel { "true" } else { "false" });
        }
        Ok((self.names, self.dropped))
    }
}

impl Choice {
    fn read(body: &Members<'_, '_>, draft: &mut Draft) -> Result<Self, ApiError> {
        let Some(choice) = body.get("tool_choice") else { return Ok(Self::Unset) };
        if choice.kind() == Kind::String {
            return Ok(Self::Mode(choice.one_of(&["none", "auto", "required"])?));
        }
        if choice.kind() != Kind::Object {
            return Err(choice.wrong_type("a string or an object"));
        }
        let members = choice.object()?;
        let kind = members.require("type")?;
        match &*kind.string()? {
            "function" | "custom" => Ok(Self::One(Tool::read(&members)?)),
            "allowed_tools" => {
                let mode = members.require("mode")?.one_of(&["auto", "required"])?;
                let mut allowed = Vec::new();
                members.require("tools")?.objects(MAX_TOOLS, |tool| {
                    // A tool that the vendor runs is dropped here too, as in the list of tools.
                    if matches!(&*tool.require("type")?.string()?, "function" | "custom") {
                        allowed.push(Tool::read(tool)?);
                    }
                    Ok(())
                })?;
                Ok(Self::Allowed(mode, allowed))
            }
            _ => {
                let problem =
                    "must be 'function', 'custom' or 'allowed_tools'; hosted tools are not supported";
                draft.pass_only(&members, || kind.error(Code::UnsupportedValue, problem))?;
                Ok(Self::Unset)
            }
        }
    }
}

impl Tool {
    fn read(members: &Members<'_, '_>) -> Result<Self, ApiError> {
        let namespace = members.get("namespace").map(|space| name(&space)).transpose()?;
        Ok(Self { namespace, name: name(&members.require("name")?)? })
    }
}

/// Returns a tool's name for upstreams. Upstreams do not support namespaces, so the name includes the namespace.
pub(super) fn flat_name(namespace: Option<&str>, name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let Some(namespace) = namespace else { return name.to_owned() };
    let flat = format!("{namespace}__{name}");
    if flat.len() <= MAX_NAME && !is_taken(&flat) {
        return flat;
    }
    let mut hasher = blake3::Hasher::new_derive_key("faregate 2026 names of tools in namespaces");
    hasher.update(namespace.as_bytes()).update(b"\0").update(name.as_bytes());
    let kept = flat.len().min(MAX_NAME - DIGEST_DIGITS - 1);
    format!("{}_{}", &flat[..kept], &hasher.finalize().to_hex()[..DIGEST_DIGITS])
}

fn too_many(list: &Value<'_, '_>) -> ApiError {
    let problem = format!("all lists of tools together must have at most {MAX_TOOLS} elements");
    list.error(Code::ArrayAboveMaxLength, &problem)
}

/// Quotes a name, which has no characters that JSON would escape.
fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}
