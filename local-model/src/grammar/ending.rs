//! How an answer comes to an end in time.
//!
//! While it is written, a way to a valid end is known that fits into the tokens that are left. A token after which none
//! would be known is not written, but the next one of that way: a string is closed, an array gets no more items, a call that
//! cannot be finished is not begun. So an answer that has room for such a way becomes valid. Where none is found, because
//! there is too little room or a pattern is too hard to follow, the model goes on as it likes, and may be cut off.

use llguidance::Matcher;

use super::{Constraint, way::ends};

/// While so many more tokens are left than the way needs, ways are not looked for: what one token commits an answer to,
/// such as the required properties of an object, mostly takes fewer.
const SPARE: usize = 256;
/// Where no way is known, it is looked for again when this share of the tokens that are left is written.
const RETRY_SHARE: usize = 8;

/// What is known of the end of an answer.
#[derive(Clone)]
pub(super) enum Ending {
    /// It is far away, or no way to it was found. So many tokens may be written until it is looked for again.
    Unknown { until: usize },
    /// These tokens lead to it.
    Known(Vec<u32>),
}

impl Default for Ending {
    fn default() -> Self {
        Self::Unknown { until: 0 }
    }
}

impl Constraint {
    /// The token to be written where the model chose this one, and `room` tokens are left: another one if the answer could
    /// not be brought to a valid end after it.
    pub(crate) fn in_time(&mut self, chosen: u32, room: usize) -> u32 {
        // Text may end anywhere, up to where a call begins.
        let is_free = self.awaited.is_some_and(|awaited| !awaited.is_met_by(chosen));
        if is_free || self.ways.markers.ends_answer(chosen) {
            return chosen;
        }
        let Some(way) = self.way_within(room) else { return chosen };
        let after = self.way_after(chosen, &way, room.saturating_sub(1));
        if let Some(after) = after {
            self.ending = Ending::of(after, room.saturating_sub(1));
            return chosen;
        }
        self.is_cut = true;
        let mut way = way.into_iter();
        let next = way.next();
        self.ending = Ending::Known(way.collect());
        next.or_else(|| self.ways.markers.ends.first().copied()).unwrap_or(chosen)
    }

    /// Whether the answer would have gone on another way, had there been more room.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The way to an end from here, if it is close enough to matter.
    fn way_within(&mut self, room: usize) -> Option<Vec<u32>> {
        match &mut self.ending {
            Ending::Known(way) => return Some(std::mem::take(way)),
            Ending::Unknown { until } if *until > 0 => {
                *until -= 1;
                return None;
            }
            Ending::Unknown { .. } => {}
        }
        if self.awaited.is_some() {
            return Some(Vec::new());
        }
        let Some(way) = self.ways.find(&self.matcher, self.part, room) else {
            self.ending = Ending::Unknown { until: room / RETRY_SHARE };
            return None;
        };
        match Ending::of(way, room) {
            Ending::Known(way) => Some(way),
            far @ Ending::Unknown { .. } => {
                self.ending = far;
                None
            }
        }
    }

    /// A way to an end after this token, which often is that from before it.
    fn way_after(&self, token: u32, way: &[u32], room: usize) -> Option<Vec<u32>> {
        if let [next, rest @ ..] = way
            && *next == token
        {
            return Some(rest.to_vec());
        }
        let mut matcher = self.matcher.clone();
        matcher.consume_token(token).ok()?;
        if way.len() <= room && leads_to_end(&matcher, way) {
            return Some(way.to_vec());
        }
        self.ways.find(&matcher, self.ways.part_after(self.part, token), room)
    }
}

impl Ending {
    /// What is worth to be remembered of a way, where so many tokens are left.
    fn of(way: Vec<u32>, room: usize) -> Self {
        match room.saturating_sub(way.len()).checked_sub(SPARE) {
            None | Some(0) => Self::Known(way),
            Some(until) => Self::Unknown { until },
        }
    }
}

fn leads_to_end(matcher: &Matcher, way: &[u32]) -> bool {
    let mut matcher = matcher.clone();
    matcher.try_consume_tokens(way).is_ok_and(|taken| taken == way.len()) && ends(&mut matcher)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        dice::Dice,
        grammar::{Demand, Grammars, Thought, Tool},
        model::Model,
        vocabulary::Vocabulary,
    };

    struct Bench {
        vocabulary: std::sync::Arc<Vocabulary>,
        grammars: Grammars,
    }

    impl Bench {
        fn new() -> Self {
            let vocabulary = Model::shipped().unwrap().vocabulary;
            Self { grammars: Grammars::new(&vocabulary).unwrap(), vocabulary }
        }

        fn json(&self, schema: &Value) -> Constraint {
            self.compile(&Demand { schema: Some(schema.clone()), ..Demand::default() })
        }

        fn compile(&self, demand: &Demand) -> Constraint {
            self.grammars.compile(demand).unwrap().unwrap()
        }

        /// So many tokens are enough for some answer.
        fn enough(constraint: &Constraint) -> usize {
            constraint.ways.find(&constraint.matcher, constraint.part, MANY).unwrap().len()
        }

        /// What is written by who takes any of the tokens that are allowed, so that hardly any string ends.
        fn write(&self, constraint: &mut Constraint, room: usize, seed: u64) -> String {
            let mut dice = Dice::new(seed);
            self.write_by(constraint, room, |_| dice.fraction())
        }

        /// What is written by who likes tokens so much.
        fn write_by(
            &self,
            constraint: &mut Constraint,
            room: usize,
            mut liking: impl FnMut(u32) -> f32,
        ) -> String {
            let mut text = Vec::new();
            for left in (1..=room).rev() {
                let mut scores: Vec<f32> = (0..).take(self.vocabulary.len()).map(&mut liking).collect();
                constraint.forbid_others(&mut scores).unwrap();
                let best = (0..).zip(scores).max_by(|(_, one), (_, other)| one.total_cmp(other));
                let token = constraint.in_time(best.unwrap().0, left);
                if self.vocabulary.markers.ends_answer(token) {
                    break;
                }
                constraint.take(token).unwrap();
                text.extend_from_slice(self.vocabulary.bytes(token));
                if constraint.is_complete() {
                    break;
                }
            }
            String::from_utf8_lossy(&text).into_owned()
        }
    }

    const MANY: usize = 500;

    fn with(value: &Value) -> Value {
        json!({"type": "object", "properties": {"value": value}, "required": ["value"]})
    }

    fn ping(more: Demand) -> Demand {
        let parameters = with(&json!({"type": "string"}));
        Demand { tools: vec![Tool { index: 0, name: "ping".to_owned(), parameters }], ..more }
    }

    #[test]
    fn what_has_room_for_an_end_is_valid_however_wild_the_text() {
        let bench = Bench::new();
        let node = json!({
            "type": "object",
            "properties": {"name": {"type": "string"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["name", "next"],
        });
        for schema in [
            json!({}),
            json!({"type": "object"}),
            with(&json!({"type": "string"})),
            with(&json!({"type": "string", "minLength": 50})),
            with(&json!({"type": "number", "exclusiveMaximum": 0})),
            with(&json!({"type": "integer", "minimum": 12_345, "multipleOf": 7})),
            with(&json!({"type": "array"})),
            with(
                &json!({"items": {"type": "array", "items": {"type": "integer"}, "minItems": 2}, "type": "array", "minItems": 3}),
            ),
            with(&json!({"enum": ["something rather long", "b", 7, null]})),
            json!({"type": "object", "additionalProperties": {"type": "boolean"}, "minProperties": 2}),
            json!({"$ref": "#/$defs/node", "$defs": {"node": node}}),
        ] {
            let constraint = bench.json(&schema);
            let enough = Bench::enough(&constraint);
            for (room, seed) in (0..8).flat_map(|more| [1, 2, 3].map(|seed| (enough + more * more, seed))) {
                let text = bench.write(&mut constraint.clone(), room, seed);
                assert!(serde_json::from_str::<Value>(&text).is_ok(), "{room} for {schema}: {text}");
            }
        }
    }

    #[test]
    fn a_way_is_found_through_formats_and_patterns() {
        let bench = Bench::new();
        let formats =
            ["email", "uri", "date", "time", "date-time", "uuid", "hostname", "ipv4", "ipv6", "duration"];
        let patterns = ["^[A-Z]{3}-[0-9]+$", "^.+@.+\\..+$", "^x_.*;$"];
        let formats = formats.map(|format| json!({"type": "string", "format": format}));
        let patterns = patterns.map(|pattern| json!({"type": "string", "pattern": pattern}));
        for schema in formats.into_iter().chain(patterns) {
            let mut constraint = bench.json(&with(&schema));
            let room = Bench::enough(&constraint) + 20;
            assert!(room < 100, "{schema}");
            let text = bench.write(&mut constraint, room, 1);
            assert!(serde_json::from_str::<Value>(&text).unwrap()["value"].is_string(), "{schema}");
        }
    }

    #[test]
    fn a_way_is_found_through_the_same_format_again_and_again() {
        let bench = Bench::new();
        let emails = json!({"type": "array", "items": {"type": "string", "format": "email"}, "minItems": 6});
        let constraint = bench.json(&emails);
        assert!(Bench::enough(&constraint) < 60);
    }

    #[test]
    fn what_ends_by_itself_in_time_is_not_cut() {
        let bench = Bench::new();
        let word = bench.vocabulary.encode("word").unwrap()[0];
        let quote = bench.vocabulary.encode("\"").unwrap()[0];
        for (length, room, is_cut) in
            [(300, 310, false), (300, 309, false), (300, 200, true), (1500, 1990, false)]
        {
            let mut constraint = bench.json(&with(&json!({"type": "string"})));
            let mut written = 0;
            let text = bench.write_by(&mut constraint, room, |token| {
                written += usize::from(token == 0);
                if token == word && written < length { 2.0 } else { f32::from(u8::from(token == quote)) }
            });
            assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
            assert_eq!(constraint.is_cut(), is_cut, "{length} in {room}");
        }
    }

    #[test]
    fn what_has_no_room_for_an_end_is_left_to_the_model() {
        let bench = Bench::new();
        let constraint = bench.json(&with(&json!({"type": "string"})));
        let mut little = constraint.clone();
        let text = bench.write(&mut little, Bench::enough(&constraint) - 3, 1);
        assert!(text.starts_with("{\"value"), "{text}");
        assert!(serde_json::from_str::<Value>(&text).is_err());
        assert!(!little.is_cut());
    }

    #[test]
    fn a_call_is_begun_only_where_it_can_be_finished() {
        let bench = Bench::new();
        let demand = ping(Demand { parallel: true, ..Demand::default() });
        let enough = Bench::enough(&bench.compile(&Demand { required: true, ..demand.clone() }));
        let call = bench.vocabulary.markers.call.unwrap();
        for room in 1..80 {
            let mut constraint = bench.compile(&demand);
            let text = bench.write_by(&mut constraint, room, |token| f32::from(u8::from(token == call.open)));
            let ends = text.matches("</tool_call>").count();
            assert_eq!(ends, text.matches("<tool_call>").count(), "{text}");
            assert_eq!(ends == 0, room < enough, "{room}: {text}");
            assert!(constraint.is_cut());
        }
    }

    #[test]
    fn a_thought_is_closed_in_time_for_what_is_required() {
        let bench = Bench::new();
        let constraint =
            bench.compile(&ping(Demand { required: true, thought: Thought::Begun, ..Demand::default() }));
        for seed in 0..5 {
            let text = bench.write(&mut constraint.clone(), 60, seed);
            assert!(text.contains("</think>") && text.ends_with("}\n</tool_call>"), "{text}");
        }
    }

    #[test]
    fn an_end_that_takes_many_tokens_is_seen_coming() {
        let bench = Bench::new();
        let word = bench.vocabulary.encode("word").unwrap()[0];
        let numbers = json!({"type": "array", "items": {"type": "integer"}, "minItems": 150});
        let properties = json!({"text": {"type": "string"}, "numbers": numbers});
        let schema = json!({"type": "object", "properties": properties, "required": ["text", "numbers"]});
        let mut constraint = bench.json(&schema);
        assert!(Bench::enough(&constraint) > SPARE);
        let text = bench.write_by(&mut constraint, 1500, |token| f32::from(u8::from(token == word)));
        let written: Value = serde_json::from_str(&text).unwrap();
        assert!(written["text"].as_str().unwrap().len() > 1000 * "word".len());
        assert_eq!(written["numbers"].as_array().unwrap().len(), 150);
    }
}
