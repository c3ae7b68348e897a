//! JSON that strict readers take.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};

/// Returns whether a text is a JSON object that strict readers take: nested no deeper than they recurse, and without halves of
/// surrogate pairs and numbers beyond a double. No tree is made of it.
pub fn is_strict_object(json: &str) -> bool {
    json.starts_with('{') && serde_json::from_str::<Skipped>(json).is_ok()
}

/// A value that was read, and of which nothing is kept.
struct Skipped;

impl<'de> Deserialize<'de> for Skipped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
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
        while elements.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        while members.next_entry::<Self, Self>()?.is_some() {}
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
            &nested(64),
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
            &nested(200),
        ] {
            assert!(!is_strict_object(bad), "{bad}");
        }
    }
}
