//! Writes JSON that follows a schema, with the model's words where they fit.
//!
//! There is no grammar engine. The model drafts what comes next, and the part that the schema allows is taken: the next
//! property, a number within its limits, a text up to its maximum length. Everything else is filled in without the
//! model.

use std::{collections::HashSet, ops::RangeInclusive};

use serde_json::{Value, json};
use shared::error::{ApiError, Code};

use crate::{
    prompt::spaced,
    reader::{Halt, Reader},
};

/// Keywords whose demands cannot be guaranteed.
const REFUSED: [&str; 14] = [
    "not",
    "if",
    "pattern",
    "patternProperties",
    "multipleOf",
    "contains",
    "uniqueItems",
    "prefixItems",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "$dynamicRef",
];
/// A text for each format.
const FORMATS: [(&str, &str); 9] = [
    ("date-time", "2026-01-31T12:00:00Z"),
    ("date", "2026-01-31"),
    ("time", "12:00:00Z"),
    ("duration", "P1D"),
    ("email", "name@example.com"),
    ("hostname", "example.com"),
    ("uri", "https://example.com/"),
    ("uuid", "123e4567-e89b-12d3-a456-426614174000"),
    ("ipv4", "192.0.2.1"),
];
/// Depth of nesting beyond which only required members are written, and depth beyond which nothing is.
const MAX_OPTIONAL_DEPTH: usize = 6;
const MAX_DEPTH: usize = 40;
/// Maximum number of characters or items that a schema may demand.
const MAX_LENGTH: usize = 200;
/// Size in bytes at which writing stops: more than any context holds.
const MAX_BYTES: usize = 1 << 16;

pub(crate) struct Filler<'a, 'b> {
    /// Without a reader, every property is written, which finds what cannot be guaranteed.
    reader: Option<&'b mut Reader<'a>>,
    /// Tokens before the text, and the maximum number of tokens in the text. A longer text is always cut.
    before: &'b [u32],
    room: usize,
    root: &'b Value,
    text: String,
}

/// Refuses a schema that cannot be followed.
pub(crate) fn check(schema: &Value) -> Result<(), ApiError> {
    let mut filler =
        Filler { reader: None, before: &[], room: usize::MAX, root: schema, text: String::new() };
    match filler.value(schema, 0) {
        Err(Halt::Refused(error)) => Err(error),
        _ if !schema.is_object() => Err(unsupported("a schema must be an object")),
        Ok(()) | Err(Halt::Ended(_) | Halt::Left) => Ok(()),
    }
}

/// Adds a value that follows a schema to a text, or as much of it as there is room for.
pub(crate) fn fill(
    reader: &mut Reader<'_>,
    before: &[u32],
    room: usize,
    schema: &Value,
    text: String,
) -> Result<String, Halt> {
    let mut filler = Filler { reader: Some(reader), before, room, root: schema, text };
    match filler.value(schema, 0) {
        Ok(()) | Err(Halt::Ended(_)) => Ok(filler.text),
        Err(halt) => Err(halt),
    }
}

/// Returns the schema for a tool's arguments, which must be an object. A tool without parameters takes an empty object.
pub(crate) fn of_arguments(parameters: Option<&Value>) -> Result<Value, ApiError> {
    let mut schema = parameters.cloned().unwrap_or_else(|| json!({}));
    let object = schema.as_object_mut().ok_or_else(|| unsupported("a schema must be an object"))?;
    if object.get("type").is_some_and(|kind| kind != "object") {
        return Err(unsupported("the arguments of a tool must be an object"));
    }
    if !object.contains_key("$ref") {
        object.entry("properties").or_insert_with(|| json!({}));
    }
    Ok(schema)
}

fn unsupported(reason: &str) -> ApiError {
    ApiError::new(Code::UnsupportedValue, format!("This schema cannot be followed: {reason}."))
}

fn refused<T>(reason: &str) -> Result<T, Halt> {
    Err(Halt::Refused(unsupported(reason)))
}

impl Filler<'_, '_> {
    /// Writes a value that follows a schema.
    fn value(&mut self, schema: &Value, depth: usize) -> Result<(), Halt> {
        if self.text.len() > MAX_BYTES {
            return Err(Halt::Ended("length"));
        }
        if depth > MAX_DEPTH {
            return refused("it refers to itself without end");
        }
        if let Some(word) = REFUSED.iter().find(|&&word| schema.get(word).is_some_and(|it| *it != false)) {
            return refused(&format!("{word} cannot be guaranteed"));
        }
        let root = self.root;
        if let Some(reference) = schema.get("$ref") {
            let place = reference.as_str().and_then(|it| it.strip_prefix('#'));
            let found = place.and_then(|place| root.pointer(place));
            return found.map_or_else(
                || refused("a reference leads nowhere within it"),
                |it| self.value(it, depth + 1),
            );
        }
        for word in ["allOf", "anyOf", "oneOf"] {
            match (schema.get(word).map(Value::as_array), schema.get("properties")) {
                (None, _) => {}
                (Some(Some(parts)), None) if !parts.is_empty() && (word != "allOf" || parts.len() == 1) => {
                    let part = parts.iter().find(|part| part["type"] != "null").unwrap_or(&parts[0]);
                    return self.value(part, depth + 1);
                }
                (Some(_), _) => return refused(&format!("{word} joins several schemas, or none")),
            }
        }
        if let Some(options) = schema.get("const").map(std::slice::from_ref) {
            return self.option(options);
        }
        if let Some(options) = schema.get("enum").and_then(Value::as_array) {
            return self.option(options);
        }
        let kind = schema.get("type");
        // If there are several types, takes the first one other than null.
        let several = kind.and_then(Value::as_array);
        let kind = several.map_or(kind, |kinds| kinds.iter().find(|kind| *kind != "null"));
        let lists = ["properties", "required"].iter().any(|word| schema.get(word).is_some());
        match kind.map(Value::as_str) {
            None if lists => self.object(schema, depth),
            None => self.any("", "\"\""),
            Some(Some("object")) if lists || schema["additionalProperties"] == false => {
                self.object(schema, depth)
            }
            Some(Some("object")) => self.any("{", "{}"),
            Some(Some("array")) => self.array(schema, depth),
            Some(Some("string")) => self.string(schema),
            Some(Some("integer")) => self.number(schema, true),
            Some(Some("number")) => self.number(schema, false),
            Some(Some("boolean")) => self.option(&[true.into(), false.into()]),
            Some(Some("null")) => self.option(&[Value::Null]),
            Some(_) => refused("JSON has no such type"),
        }
    }

    /// Lets the model continue the text and `opening`, unless the answer has no room left.
    fn draft(&mut self, opening: &str, is_enough: impl Fn(&str) -> bool) -> Result<String, Halt> {
        let Some(reader) = &mut self.reader else { return Ok(String::new()) };
        if self.text.len() >= self.room && reader.count(&self.text) >= self.room {
            return Err(Halt::Ended("length"));
        }
        reader.draft(self.before, &format!("{}{opening}", self.text), is_enough)
    }

    /// Lets the model continue until a JSON value is complete. A number is complete as soon as anything else follows
    /// it.
    fn drafted(&mut self, opening: &str) -> Result<Option<Value>, Halt> {
        let value = |written: &str| {
            let text = format!("{opening}{written}");
            let mut values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
            let value = values.next()?.ok()?;
            Some((!value.is_number() || values.byte_offset() < text.len(), value))
        };
        let written = self.draft(opening, |written| value(written).is_some_and(|(is_whole, _)| is_whole))?;
        Ok(value(&written).map(|(_, value)| value))
    }

    fn any(&mut self, opening: &str, otherwise: &str) -> Result<(), Halt> {
        let drafted = self.drafted(opening)?;
        self.text.push_str(&drafted.map_or_else(|| otherwise.to_owned(), |value| spaced(&value)));
        Ok(())
    }

    fn option(&mut self, options: &[Value]) -> Result<(), Halt> {
        let Some(first) = options.first() else { return refused("enum lists no value") };
        let drafted = self.drafted(if first.is_string() { "\"" } else { "" })?;
        let option = options.iter().find(|option| drafted.as_ref() == Some(option)).unwrap_or(first);
        self.text.push_str(&spaced(option));
        Ok(())
    }

    fn number(&mut self, schema: &Value, is_whole: bool) -> Result<(), Halt> {
        let bound = |word: &str| schema.get(word).and_then(Value::as_f64);
        // A number at this distance from an excluded limit is within the limits.
        let step = if is_whole { 1.0 } else { 1e-6 };
        let least = [bound("minimum"), bound("exclusiveMinimum").map(|it| it + step)];
        let most = [bound("maximum"), bound("exclusiveMaximum").map(|it| it - step)];
        let least = least.into_iter().flatten().fold(-1e15, f64::max);
        let most = most.into_iter().flatten().fold(1e15, f64::min);
        let (least, most) = if is_whole { (least.ceil(), most.floor()) } else { (least, most) };
        if least > most {
            return refused("no number fits its bounds");
        }
        let drafted = self.drafted("")?.and_then(|value| value.as_f64()).unwrap_or_default();
        let number = drafted.clamp(least, most);
        self.text.push_str(&if is_whole { number.trunc() } else { number }.to_string());
        Ok(())
    }

    /// Writes a string from the model's words, cut or filled up to the allowed length.
    fn string(&mut self, schema: &Value) -> Result<(), Halt> {
        if let Some(format) = schema.get("format") {
            let known = FORMATS.iter().find(|(word, _)| format == word);
            let Some((_, text)) = known else {
                return refused(&format!("the format {format} cannot be guaranteed"));
            };
            return self.option(&[(*text).into()]);
        }
        let (least, most) = lengths(schema, "minLength", "maxLength")?.into_inner();
        let written =
            self.draft("\"", |written| closed(written).is_some() || written.chars().count() > most)?;
        let written = closed(&written).unwrap_or(&written);
        let words = serde_json::from_str(&format!("\"{written}\"")).unwrap_or_else(|_| written.to_owned());
        let mut words: String = words.chars().take(most).collect();
        words.extend((words.chars().count()..least).map(|_| '.'));
        self.text.push_str(&Value::from(words).to_string());
        Ok(())
    }

    /// Writes an object: the required properties, and those others that the model would write next.
    fn object(&mut self, schema: &Value, depth: usize) -> Result<(), Halt> {
        let required = schema.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let listed = schema.get("properties").and_then(Value::as_object);
        let is_listed =
            |name: &Value| listed.zip(name.as_str()).is_some_and(|(it, name)| it.contains_key(name));
        if !required.iter().all(is_listed) {
            return refused("a property is required, but not listed");
        }
        let required: HashSet<&str> = required.iter().filter_map(Value::as_str).collect();
        self.text.push('{');
        let (mut is_first, mut next) = (true, None);
        for (name, part) in listed.into_iter().flatten() {
            if !required.contains(name.as_str()) {
                if next.is_none() && depth < MAX_OPTIONAL_DEPTH {
                    next = Some(self.next_name()?);
                }
                let is_wanted = |next: &String| next == name || self.reader.is_none();
                if !next.as_ref().is_some_and(is_wanted) {
                    continue;
                }
            }
            self.text.push_str(if is_first { "" } else { ", " });
            self.text.extend([&Value::from(name.as_str()).to_string(), ": "]);
            self.value(part, depth + 1)?;
            (is_first, next) = (false, None);
        }
        self.text.push('}');
        Ok(())
    }

    /// Returns the name of the property that the model would write next; empty if there is none.
    fn next_name(&mut self) -> Result<String, Halt> {
        let name = |written: &str| {
            let rest = written.trim_start_matches([',', ' ']).strip_prefix('"')?;
            closed(rest).map(str::to_owned)
        };
        let written = self.draft("", |written| written.contains('}') || name(written).is_some())?;
        Ok(name(&written).unwrap_or_default())
    }

    /// Writes a list. It continues while it must, and then while the model would continue.
    fn array(&mut self, schema: &Value, depth: usize) -> Result<(), Halt> {
        let (least, most) = lengths(schema, "minItems", "maxItems")?.into_inner();
        self.text.push('[');
        for count in 0..most.min(MAX_LENGTH) {
            if count >= least.max(usize::from(self.reader.is_none() && depth < MAX_OPTIONAL_DEPTH)) {
                let written = self.draft("", |written| !written.trim_start().is_empty())?;
                let begun = written.trim_start().chars().next();
                let goes_on = if count == 0 { begun != Some(']') } else { begun == Some(',') };
                if !goes_on || depth >= MAX_OPTIONAL_DEPTH {
                    break;
                }
            }
            self.text.push_str(if count == 0 { "" } else { ", " });
            self.value(schema.get("items").unwrap_or(&Value::Bool(true)), depth + 1)?;
        }
        self.text.push(']');
        Ok(())
    }
}

/// Reads the limits of a length.
fn lengths(schema: &Value, least: &str, most: &str) -> Result<RangeInclusive<usize>, Halt> {
    let bound = |word| schema.get(word).and_then(Value::as_u64).and_then(|it| usize::try_from(it).ok());
    let (low, high) = (bound(least).unwrap_or(0), bound(most).unwrap_or(usize::MAX));
    if low > high || low > MAX_LENGTH {
        return refused(&format!("{least} is above {most}, or above {MAX_LENGTH}"));
    }
    Ok(low..=high)
}

/// Returns the text before the closing quote, if there is one.
fn closed(written: &str) -> Option<&str> {
    let mut is_escaped = false;
    let end = written.find(|it: char| {
        let is_end = it == '"' && !is_escaped;
        is_escaped = it == '\\' && !is_escaped;
        is_end
    });
    end.map(|end| &written[..end])
}

#[cfg(test)]
mod tests;
