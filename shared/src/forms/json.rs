//! Parsing of JSON objects with unique names, whose members stay unparsed until needed.

use std::{borrow::Cow, collections::HashSet, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};
pub use serde_json::value::RawValue;

use crate::{
    error::{ApiError, Code},
    text::shown,
};

/// Number of members up to which duplicates are found by comparing all pairs; beyond it, a set finds them.
const FEW_MEMBERS: usize = 16;

/// Maximum number of members in an object: far more than any valid object has, and few enough that very short names
/// take little memory.
const MAX_MEMBERS: usize = 4096;

const MAX_SHOWN_NAME: usize = 80;
/// Maximum number of characters of a parser's error in an answer. The error may quote a whole value of the wrong type.
const MAX_SHOWN_ERROR: usize = 300;

/// Kind of a JSON value, recognised by its first character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

impl Kind {
    pub fn of(value: &RawValue) -> Self {
        match value.get().as_bytes().first() {
            Some(b'n') => Self::Null,
            Some(b't' | b'f') => Self::Bool,
            Some(b'"') => Self::String,
            Some(b'[') => Self::Array,
            Some(b'{') => Self::Object,
            _ => Self::Number,
        }
    }

    /// Returns the kind with an article, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }
}

/// Members of a JSON object in order. Names are unique; values are unparsed.
#[derive(Debug, Default)]
pub struct Object<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Object<'a> {
    /// Reads an object from the bytes of a body. The error describes the fault and its position.
    pub fn from_slice(bytes: &'a [u8]) -> Result<Self, serde_json::Error> {
        from_slice(bytes)
    }

    /// Reads an object from a value.
    pub fn from_raw(value: &'a RawValue) -> Result<Self, serde_json::Error> {
        serde_json::from_str(value.get())
    }

    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| *value)
    }

    /// Returns the object without these members.
    #[must_use]
    pub fn without(mut self, names: &[&str]) -> Self {
        self.0.retain(|(name, _)| !names.contains(&&**name));
        self
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (&**name, *value))
    }
}

/// Reads JSON. Checks UTF-8 once for the whole text, which is much cheaper than checking each string.
pub fn from_slice<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, serde_json::Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) => serde_json::from_str(text),
        // The text is not UTF-8; the parser's error names the position.
        Err(_) => serde_json::from_slice(bytes),
    }
}

/// Returns the elements of an array, unparsed.
pub fn elements(value: &RawValue) -> Result<Vec<&RawValue>, serde_json::Error> {
    serde_json::from_str(value.get())
}

/// Passes each element of an array to `take` while reading, so that an array of millions is never held as a list. Fails
/// if `take` returns false.
pub fn each_element<'a, T: Deserialize<'a>>(
    array: &'a RawValue,
    take: impl FnMut(T) -> bool,
) -> Result<(), serde_json::Error> {
    serde_json::Deserializer::from_str(array.get()).deserialize_seq(Elements(take, PhantomData))
}

struct Elements<F, T>(F, PhantomData<T>);

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> bool> Visitor<'de> for Elements<F, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element()? {
            if !(self.0)(element) {
                return Err(A::Error::custom("an element was refused"));
            }
        }
        Ok(())
    }
}

/// Returns a parser's error, cut for an answer.
pub fn parse_error(error: &serde_json::Error) -> String {
    shown(&error.to_string(), MAX_SHOWN_ERROR)
}

/// Reads a body that must be a JSON object.
pub fn parse_object(body: &[u8]) -> Result<Object<'_>, ApiError> {
    Object::from_slice(body).map_err(|e| invalid_json(&e))
}

/// Returns the error for a body that is not a JSON object with unique names.
pub fn invalid_json(error: &serde_json::Error) -> ApiError {
    ApiError::new(Code::InvalidJson, format!("The body is not a valid JSON object: {}.", parse_error(error)))
}

/// Returns the text of a string, borrowed if it has no escapes.
pub fn text(value: &RawValue) -> Result<Cow<'_, str>, serde_json::Error> {
    serde_json::from_str::<Text<'_>>(value.get()).map(|text| text.0)
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;
        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut members: Vec<(Cow<'de, str>, &'de RawValue)> = Vec::new();
                let mut seen = HashSet::new();
                while let Some((Text(name), value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
                    let duplicate = if members.len() < FEW_MEMBERS {
                        members.iter().any(|(n, _)| *n == name)
                    } else {
                        if seen.is_empty() {
                            seen.extend(members.iter().map(|(n, _)| n.clone()));
                        }
                        !seen.insert(name.clone())
                    };
                    if duplicate {
                        let name = shown(&name, MAX_SHOWN_NAME);
                        return Err(A::Error::custom(format_args!("duplicate member `{name}`")));
                    }
                    if members.len() == MAX_MEMBERS {
                        return Err(A::Error::custom(format_args!("more than {MAX_MEMBERS} members")));
                    }
                    members.push((name, value));
                }
                Ok(Object(members))
            }
        }
        deserializer.deserialize_map(ObjectVisitor)
    }
}

/// A string that borrows from the source where possible.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_borrowed_and_unparsed() {
        let object = Object::from_slice(br#"{"a": [1, {"b": 2}], "\u0063": "x"}"#).unwrap();
        assert_eq!(object.get("a").unwrap().get(), r#"[1, {"b": 2}]"#);
        assert_eq!(object.get("c").unwrap().get(), r#""x""#);
        assert!(object.get("b").is_none());
    }

    #[test]
    fn duplicate_names_are_refused_however_they_are_spelled_and_however_many_members_there_are() {
        assert!(Object::from_slice(br#"{"a":1,"\u0061":2}"#).is_err());
        let members = |count: usize| (0..count).map(|i| format!(r#""k{i}":0,"#)).collect::<Vec<_>>().concat();
        let many = members(100);
        assert!(Object::from_slice(format!(r#"{{{many}"x":0}}"#).as_bytes()).is_ok());
        let too_many = members(MAX_MEMBERS + 1);
        assert!(Object::from_slice(format!(r#"{{{too_many}"x":0}}"#).as_bytes()).is_err());
        for again in [0, 50, 99] {
            assert!(Object::from_slice(format!(r#"{{{many}"k{again}":0}}"#).as_bytes()).is_err());
        }
    }

    #[test]
    fn what_an_error_repeats_of_its_input_has_an_end() {
        let long = "x".repeat(2_000_000);
        for bad in [format!(r#"{{"{long}":1,"{long}":2}}"#), format!("\"{long}\"")] {
            let error = parse_error(&Object::from_slice(bad.as_bytes()).unwrap_err());
            assert!(error.len() < 1_000, "{} bytes", error.len());
        }
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for bad in
            [&b"{\"a\":01}"[..], b"{} x", b"\xef\xbb\xbf{}", b"{\"a\":\"\xff\"}", b"", b"[]", b"{\"a\":NaN}"]
        {
            assert!(Object::from_slice(bad).is_err(), "{bad:?}");
        }
    }
}
