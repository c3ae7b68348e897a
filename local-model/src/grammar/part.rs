//! The parts of JSON that an answer goes through, and where a number has to end: a small model may write digits for ever, and
//! few schemas forbid it.

/// Digits before a point, and as many after it: every integer of so many is exact in a client's double.
const MAX_DIGITS: u32 = 15;
/// Digits of an exponent: with those before it, the number is still finite in a client's double.
const MAX_EXPONENT_DIGITS: u32 = 2;

/// The part of JSON that an answer is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// No JSON yet.
    Thought,
    /// Within a string.
    Text { escaped: bool },
    /// Behind some digits of a number, its point or the `e` of its exponent, where no more than `most` belong.
    Number { digits: u32, most: u32 },
    /// All else.
    Between,
}

impl Part {
    /// Whether these bytes would make the number longer than any number needs.
    pub(super) fn is_overrun_by(self, bytes: &[u8]) -> bool {
        let mut parts = bytes.iter().scan(self, |part, &byte| {
            *part = part.after_byte(byte);
            Some(*part)
        });
        parts.any(|part| matches!(part, Self::Number { digits, most } if digits > most))
    }

    /// How much further away these bytes put the end of an answer: by what they open, less what they close, and by the text
    /// that they write within strings.
    pub(super) fn delay_of(self, bytes: &[u8]) -> i32 {
        let delays = bytes.iter().scan(self, |part, &byte| {
            let before = *part;
            *part = before.after_byte(byte);
            Some(match (before, byte) {
                (Self::Text { .. }, _) if *part == Self::Between => -1,
                (Self::Text { .. }, _) | (Self::Number { .. } | Self::Between, b'"' | b',') => 1,
                (Self::Number { .. } | Self::Between, b'[' | b'{') => 2,
                (Self::Number { .. } | Self::Between, b']' | b'}') => -2,
                (Self::Thought | Self::Number { .. } | Self::Between, _) => 0,
            })
        });
        delays.sum()
    }

    /// The part that one is in after these bytes.
    pub(super) fn after(self, bytes: &[u8]) -> Self {
        bytes.iter().fold(self, |part, &byte| part.after_byte(byte))
    }

    fn after_byte(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Thought, _) => Self::Thought,
            (Self::Text { escaped: false }, b'"') => Self::Between,
            (Self::Text { escaped }, _) => Self::Text { escaped: byte == b'\\' && !escaped },
            (Self::Number { .. } | Self::Between, b'"') => Self::Text { escaped: false },
            (Self::Between, b'0'..=b'9') => Self::Number { digits: 1, most: MAX_DIGITS },
            (Self::Number { digits, most }, b'0'..=b'9') => {
                Self::Number { digits: digits.saturating_add(1), most }
            }
            (Self::Number { .. }, b'.') => Self::Number { digits: 0, most: MAX_DIGITS },
            (Self::Number { .. }, b'e' | b'E') => Self::Number { digits: 0, most: MAX_EXPONENT_DIGITS },
            (Self::Number { .. }, b'+' | b'-') => self,
            (Self::Number { .. } | Self::Between, _) => Self::Between,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        grammar::{Demand, Grammars},
        model::Model,
    };

    /// What a model writes that likes digits best, then whatever makes a number longer.
    fn written_by_a_lover_of_digits(schema: Value) -> String {
        let liking = |bytes: &[u8]| match bytes {
            [b'1'..=b'9', ..] => 3.0,
            [b'.', ..] => 2.0,
            [b'e', ..] => 1.0,
            _ => 0.0,
        };
        written_by(liking, schema)
    }

    /// What a model writes that likes tokens with these bytes so much.
    fn written_by(liking: impl Fn(&[u8]) -> f32, schema: Value) -> String {
        let vocabulary = Model::shipped().unwrap().vocabulary;
        let demand = Demand { schema: Some(schema), ..Demand::default() };
        let mut constraint = Grammars::new(&vocabulary).unwrap().compile(&demand).unwrap().unwrap();
        let mut text = Vec::new();
        for _ in 0..100 {
            let mut scores: Vec<f32> =
                (0..).take(vocabulary.len()).map(|token| liking(vocabulary.bytes(token))).collect();
            constraint.forbid_others(&mut scores).unwrap();
            let (token, _) = (0..).zip(scores).max_by(|(_, one), (_, other)| one.total_cmp(other)).unwrap();
            if vocabulary.markers.ends_answer(token) {
                break;
            }
            text.extend_from_slice(vocabulary.bytes(token));
            constraint.take(token).unwrap();
            if constraint.is_complete() {
                break;
            }
        }
        String::from_utf8(text).unwrap()
    }

    fn number(schema: &Value) -> Value {
        let required = json!({"type": "object", "properties": {"people": schema}, "required": ["people"]});
        let text = written_by_a_lover_of_digits(required);
        let object: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("not JSON: {text}"));
        object["people"].clone()
    }

    #[test]
    fn digits_that_would_go_on_for_ever_end_as_a_valid_number() {
        let integer = number(&json!({"type": "integer"})).as_u64().unwrap();
        assert_eq!(integer.to_string().len(), 15);
        assert!(number(&json!({"type": "integer", "minimum": 3})).as_u64().unwrap() < 1_000_000_000_000_000);
        for open in [
            json!({"type": "number"}),
            json!({"type": "number", "minimum": 0.5}),
            json!({"type": ["number", "null"]}),
        ] {
            assert!(number(&open).as_f64().unwrap().is_finite());
        }
        let alone = written_by_a_lover_of_digits(json!({"type": "integer"}));
        assert_eq!(alone.len(), 15);
    }

    #[test]
    fn zeros_do_not_go_on_for_ever_where_a_number_must_be_greater() {
        for most in [0.5, 1.0, 20.0] {
            let share = json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": most});
            let text = written_by(|bytes| f32::from(u8::from(bytes.ends_with(b"0"))), share);
            let number: f64 = text.parse().unwrap();
            assert!(number > 0.0 && number < most && text.len() < 20, "{text}");
        }
    }

    #[test]
    fn what_the_schema_says_of_a_number_goes_before() {
        let bound = 100_000_000_000_000_000_u64;
        assert!(number(&json!({"type": "integer", "minimum": bound})).as_u64().unwrap() >= bound);
        assert!(number(&json!({"type": "integer", "maximum": 20, "minimum": 1})).as_u64().unwrap() <= 20);
        assert_eq!(number(&json!({"const": 7})), 7);
    }

    #[test]
    fn what_opens_or_writes_delays_the_end_and_what_closes_brings_it_closer() {
        let text = Part::Text { escaped: false };
        assert_eq!(Part::Between.delay_of(b"{\"a\": [1, 2"), 2 + 1 + 2 + 1);
        assert_eq!(text.delay_of(b"\"}]"), -1 - 2 - 2);
        assert_eq!(text.delay_of(b"\\\"]\", \""), 3 - 1 + 1 + 1);
        assert_eq!(Part::Thought.delay_of(b"[{\"]"), 0);
    }

    #[test]
    fn digits_of_a_string_or_a_thought_are_not_counted() {
        let digits = [b'1'; 40];
        assert!(Part::Between.is_overrun_by(&digits));
        assert!(!Part::Between.after(br#"{"a\"": "1"#).is_overrun_by(&digits));
        assert!(!Part::Thought.is_overrun_by(&digits));
    }
}
