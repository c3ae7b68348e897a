//! The size of a schema once its references are followed: the library joins schemas before any of its own limits counts, so
//! that a few lines can keep it busy for ever.

use std::collections::HashMap;

use serde_json::Value;

/// Schemas that a schema may become. A large one of a real API has some hundreds.
const MAX_SCHEMAS: u64 = 10_000;
/// Combinations of alternatives that schemas to be followed at once may have.
const MAX_COMBINATIONS: u64 = 256;
/// References that may be followed one from within another.
const MAX_CHAIN: usize = 64;

/// Refuses a schema that becomes too large.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    let extent = Expansion { root: schema, known: HashMap::new(), chain: 0 }.of(schema);
    if extent.schemas > MAX_SCHEMAS || extent.combinations > MAX_COMBINATIONS {
        return Err("its references and combinations make too much of it".to_owned());
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Extent {
    schemas: u64,
    combinations: u64,
}

const NOTHING: Extent = Extent { schemas: 0, combinations: 1 };

struct Expansion<'a> {
    root: &'a Value,
    /// What references lead to; nothing, while it is being found out.
    known: HashMap<&'a str, Extent>,
    chain: usize,
}

impl<'a> Expansion<'a> {
    fn of(&mut self, schema: &'a Value) -> Extent {
        match schema {
            Value::Object(parts) => {
                let first = Extent { schemas: 1, ..NOTHING };
                parts.iter().map(|(word, part)| self.part(word, part)).fold(first, Extent::and)
            }
            Value::Array(parts) => parts.iter().map(|part| self.of(part)).fold(NOTHING, Extent::and),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => NOTHING,
        }
    }

    fn part(&mut self, word: &str, part: &'a Value) -> Extent {
        match (word, part) {
            ("$ref", Value::String(target)) => self.target(target),
            ("anyOf" | "oneOf", Value::Array(options)) => {
                let extents: Vec<Extent> = options.iter().map(|option| self.of(option)).collect();
                let combinations = extents.iter().fold(0_u64, |sum, it| sum.saturating_add(it.combinations));
                Extent { combinations: combinations.max(1), ..extents.into_iter().fold(NOTHING, Extent::and) }
            }
            ("allOf", all) => self.of(all),
            // Members and elements are followed one by one.
            (_, part) => Extent { combinations: 1, ..self.of(part) },
        }
    }

    fn target(&mut self, target: &'a str) -> Extent {
        if let Some(known) = self.known.get(target) {
            return *known;
        }
        let Some(schema) = target.strip_prefix('#').and_then(|path| self.root.pointer(path)) else {
            return NOTHING;
        };
        if self.chain == MAX_CHAIN {
            return Extent { schemas: u64::MAX, combinations: 1 };
        }
        self.known.insert(target, NOTHING);
        self.chain += 1;
        let extent = self.of(schema);
        self.chain -= 1;
        self.known.insert(target, extent);
        extent
    }
}

impl Extent {
    fn and(self, other: Self) -> Self {
        Self {
            schemas: self.schemas.saturating_add(other.schemas),
            combinations: self.combinations.saturating_mul(other.combinations),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A schema whose definitions each lead to the next one, `times` over.
    fn chain(times: usize, step: impl Fn(Value) -> Value) -> Value {
        let next = |at: usize| json!({"$ref": format!("#/$defs/d{}", at + 1)});
        let mut defs: serde_json::Map<_, _> =
            (0..times).map(|at| (format!("d{at}"), step(next(at)))).collect();
        defs.insert(format!("d{times}"), json!({"type": "string", "pattern": "^a.*$"}));
        json!({"$defs": defs, "$ref": "#/$defs/d0"})
    }

    #[test]
    fn a_small_schema_that_becomes_a_large_one_is_refused() {
        let both = |next: Value| json!({"allOf": [next, next]});
        assert!(check(&chain(5, both)).is_ok() && check(&chain(20, both)).is_err());
        let either = |next: Value| json!({"anyOf": [next, {"allOf": [next, {"pattern": "^a"}]}]});
        assert!(check(&chain(20, either)).is_err());
        assert!(check(&chain(1_000, |next| next)).is_err());
        let options = json!({"anyOf": [{"const": 1}, {"const": 2}]});
        assert!(check(&json!({"allOf": vec![options; 9]})).is_err());
    }

    #[test]
    fn schemas_that_refer_to_themselves_and_reuse_definitions_are_followed() {
        let node =
            json!({"properties": {"left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"}}});
        assert!(check(&json!({"$defs": {"node": node}, "$ref": "#/$defs/node"})).is_ok());
        let address = json!({"$defs": {"a": {"properties": {"street": {"type": "string"}}}},
            "properties": {"from": {"$ref": "#/$defs/a"}, "to": {"$ref": "#/$defs/a"}}});
        assert!(check(&address).is_ok());
    }
}
