//! Detects JSON that strict readers accept.

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};

/// Maximum nesting of an object. Readers stop at 128 levels, and a message contains the object at some depth.
const MOST_LEVELS: u8 = 100;

/// Returns whether a text is a JSON object that strict readers accept within a message: not nested too deeply for them,
/// and without unpaired surrogates or numbers too large for a double. It builds no tree.
pub fn is_strict_object(json: &str) -> bool {
    let mut reader = serde_json::Deserializer::from_str(json);
    json.starts_with('{') && Skipped(MOST_LEVELS).deserialize(&mut reader).is_ok() && reader.end().is_ok()
}

/// Reads and discards a value, with at most this many levels.
#[derive(Clone, Copy)]
struct Skipped(u8);

impl Skipped {
    /// Returns the reader of values that are nested in this value.
    fn inner<E: Error>(self) -> Result<Self, E> {
        self.0.checked_sub(1).map(Self).ok_or_else(|| E::custom("nested too deeply"))
    }
}

impl<'de> DeserializeSeed<'de> for Skipped {
    type Value = Self;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Skipped {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self, A::Error> {
        let inner = self.inner()?;
        while elements.next_element_seed(inner)?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        let inner = self.inner()?;
        while members.next_entry_seed(inner, inner)?.is_some() {}
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_some_readers_refuse_is_not_strict() {
        let nested = |levels: usize| format!("{{\"a\":{}1{}}}", "[".repeat(levels), "]".repeat(levels));
        for good in [
            "{}",
            r#"{"a":[1,-2.5e3,true,null,"\ud83d\ude00"],"b":{"\u00e9":18446744073709551615}}"#,
            &nested(99),
        ] {
            assert!(is_strict_object(good), "{good}");
        }
        for bad in [
            "",
            "[1]",
            "1",
            "{",
            r#"{"a":1}x"#,
            r#"{"a":"\ud83d"}"#,
            r#"{"\ude00":1}"#,
            r#"{"a":1e400}"#,
            &nested(100),
        ] {
            assert!(!is_strict_object(bad), "{bad}");
        }
    }
}
