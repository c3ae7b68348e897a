//! Reads members of any type. Only broken JSON and overlong lists are errors.

use std::{fmt, marker::PhantomData};

use raw_json::RawString;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use shared::json::{Kind, RawValue};

use super::nonsense::BEYOND;

/// A member of any type; `None` if it is absent or null.
pub(crate) type Raw<'a> = Option<&'a RawValue>;

/// Returns a text, if the member is one.
pub(crate) fn text(raw: Raw<'_>) -> Option<RawString<'_>> {
    raw.and_then(RawString::of)
}

/// Returns a text, if the member is one and is not empty.
pub(crate) fn filled(raw: Raw<'_>) -> Option<RawString<'_>> {
    text(raw).filter(|text| !text.is_empty())
}

/// Returns a word, as spelled in JSON without quotes; empty if the member is not a text.
pub(crate) fn word(raw: Raw<'_>) -> &str {
    text(raw).map_or("", RawString::inner)
}

/// Returns a whole number, even one spelled as a text or with a fraction of zero.
pub(crate) fn number(raw: Raw<'_>) -> Option<u64> {
    let spelled = raw?.get().trim_matches('"');
    let spelled = spelled.split_once('.').map_or(spelled, |(whole, fraction)| {
        if fraction.bytes().all(|digit| digit == b'0') { whole } else { spelled }
    });
    spelled.parse().ok()
}

/// Reads an object with optional members of any type; `None` for any other value.
pub(crate) fn object<'a, T: Deserialize<'a>>(raw: Raw<'a>) -> Option<T> {
    let raw = raw.filter(|raw| Kind::of(raw) == Kind::Object)?;
    serde_json::from_str(raw.get()).ok()
}

/// Returns whether a value is empty: null, false, or only blanks between its quotes or brackets.
pub(crate) fn is_hollow(value: &RawValue) -> bool {
    let spelled = value.get();
    let inner =
        spelled.get(1..spelled.len() - 1).filter(|_| !spelled.starts_with(|c: char| c.is_alphanumeric()));
    spelled == "false" || spelled == "null" || inner.is_some_and(|inner| inner.trim_ascii().is_empty())
}

/// An object, or another value in its place.
#[derive(Default)]
pub(crate) enum Loose<T> {
    Object(T),
    Other,
    #[default]
    Absent,
}

impl<T> Loose<T> {
    pub(crate) fn object(self) -> Option<T> {
        match self {
            Self::Object(object) => Some(object),
            Self::Other | Self::Absent => None,
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Loose<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LooseVisitor(PhantomData))
    }
}

struct LooseVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for LooseVisitor<T> {
    type Value = Loose<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Loose<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members)).map(Loose::Object)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Loose<T>, A::Error> {
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Loose::Other)
    }

    fn visit_unit<E>(self) -> Result<Loose<T>, E> {
        Ok(Loose::Absent)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Loose<T>, E> {
        Ok(Loose::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Loose<T>, E> {
        Ok(Loose::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Loose<T>, E> {
        Ok(Loose::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Loose<T>, E> {
        Ok(Loose::Other)
    }

    fn visit_str<E>(self, _: &str) -> Result<Loose<T>, E> {
        Ok(Loose::Other)
    }
}

/// The objects of a list, or a single object where a list belongs. More than `MOST` elements are refused: a body could
/// repeat `{}` millions of times, each many times larger in memory.
pub(crate) struct Objects<T, const MOST: usize>(pub(crate) Vec<T>);

impl<T, const MOST: usize> Default for Objects<T, MOST> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for Objects<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ObjectsVisitor(PhantomData))
    }
}

struct ObjectsVisitor<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for ObjectsVisitor<T, MOST> {
    type Value = Objects<T, MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let (mut read, mut elements_read) = (Vec::new(), 0);
        while let Some(element) = elements.next_element::<Loose<T>>()? {
            if elements_read == MOST {
                return Err(A::Error::custom(BEYOND));
            }
            elements_read += 1;
            read.extend(element.object());
        }
        Ok(Objects(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
        Ok(Objects(vec![T::deserialize(MapAccessDeserializer::new(members))?]))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Objects::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Objects::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Objects::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Objects::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Objects::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Objects::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Members<'a> {
        #[serde(borrow)]
        a: Raw<'a>,
        #[serde(borrow, default)]
        b: Loose<Inner<'a>>,
        #[serde(default)]
        c: Objects<Inner<'a>, 2>,
    }

    #[derive(Deserialize)]
    struct Inner<'a> {
        #[serde(borrow)]
        d: Raw<'a>,
    }

    fn read(json: &str) -> Result<Members<'_>, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn values_of_any_type_are_read_or_are_as_if_absent() {
        for value in ["null", "true", "-1", "7", "1.5", r#""x""#, r#""\n""#, "[]", "[1]", r#"[{"d":1}]"#] {
            let json = format!(r#"{{"a":{value},"b":{value},"c":{value}}}"#);
            let members = read(&json).unwrap();
            assert_eq!(members.a.map(RawValue::get), Some(value).filter(|value| *value != "null"));
            assert!(members.b.object().is_none(), "{value}");
            assert_eq!(members.c.0.len(), usize::from(value.contains('d')), "{value}");
        }
        let read_whole = read(r#"{"b":{"d":"e"},"c":[1,{"d":2}]}"#).unwrap();
        assert_eq!(text(read_whole.b.object().unwrap().d).unwrap().inner(), "e");
        assert_eq!(read_whole.c.0.iter().filter_map(|inner| number(inner.d)).collect::<Vec<_>>(), [2]);
        assert!(read(r#"{"c":[1,{},{}]}"#).is_err());
    }

    #[test]
    fn whole_numbers_are_read_however_they_are_spelled() {
        for (spelled, expected) in [
            ("0", Some(0)),
            ("7.0", Some(7)),
            (r#""12""#, Some(12)),
            ("-1", None),
            ("1.5", None),
            ("1e3", None),
            (r#""""#, None),
            ("[]", None),
        ] {
            let raw: &RawValue = serde_json::from_str(spelled).unwrap();
            assert_eq!(number(Some(raw)), expected, "{spelled}");
        }
    }
}
