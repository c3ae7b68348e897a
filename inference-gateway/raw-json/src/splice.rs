//! Edits a JSON text in place. Everything else stays exactly as the sender spelled it.

use std::borrow::Cow;

/// Edits of a JSON text, at any depth and in any order. A value is identified by the slice that a reader borrowed from
/// the text. An edit is ignored if it is within a value that is replaced, or if the slice is from another text.
pub struct Splice<'a> {
    source: &'a str,
    edits: Vec<SpliceEdit<'a>>,
}

struct SpliceEdit<'a> {
    start: usize,
    end: usize,
    kind: EditKind<'a>,
}

enum EditKind<'a> {
    Replace(Cow<'a, str>),
    /// Adds a member before a closing brace.
    Insert {
        name: &'a str,
        value: Cow<'a, str>,
    },
}

impl<'a> Splice<'a> {
    pub const fn of(source: &'a str) -> Self {
        Self { source, edits: Vec::new() }
    }

    /// Replaces a value with a JSON text.
    pub fn replace(&mut self, value: &str, with: impl Into<Cow<'a, str>>) {
        if let Some(start) = self.place_of(value) {
            self.edit(start, start + value.len(), EditKind::Replace(with.into()));
        }
    }

    /// Adds a member at the end of an object. The name must not need escapes; the value is a JSON text.
    pub fn insert(&mut self, object: &str, name: &'a str, value: impl Into<Cow<'a, str>>) {
        if let Some(start) = self.place_of(object) {
            self.insert_before(start + object.len(), name, value.into());
        }
    }

    /// Adds a member to the outermost object.
    pub fn insert_at_root(&mut self, name: &'a str, value: impl Into<Cow<'a, str>>) {
        self.insert_before(self.source.trim_ascii_end().len(), name, value.into());
    }

    /// Returns the text with all edits.
    pub fn finish(mut self) -> String {
        // If two edits begin at the same position, the longer edit contains the other.
        self.edits.sort_by_key(|edit| (edit.start, std::cmp::Reverse(edit.end)));
        let mut out = String::with_capacity(self.source.len() + 64);
        let mut at = 0;
        for SpliceEdit { start, end, kind } in self.edits {
            if start < at {
                continue;
            }
            out.push_str(&self.source[at..start]);
            at = end;
            match kind {
                EditKind::Replace(with) => out.push_str(&with),
                EditKind::Insert { name, value } => put_member(name, &value, &mut out),
            }
        }
        out.push_str(&self.source[at..]);
        out
    }

    /// Finds the position of a value that was borrowed from the text.
    fn place_of(&self, value: &str) -> Option<usize> {
        let start = (value.as_ptr() as usize).checked_sub(self.source.as_ptr() as usize)?;
        (start + value.len() <= self.source.len()).then_some(start)
    }

    fn insert_before(&mut self, end_of_object: usize, name: &'a str, value: Cow<'a, str>) {
        if self.source[..end_of_object].ends_with('}') {
            let brace = end_of_object - 1;
            self.edit(brace, brace, EditKind::Insert { name, value });
        }
    }

    fn edit(&mut self, start: usize, end: usize, kind: EditKind<'a>) {
        self.edits.push(SpliceEdit { start, end, kind });
    }
}

fn put_member(name: &str, value: &str, out: &mut String) {
    if !out.trim_ascii_end().ends_with('{') {
        out.push(',');
    }
    for part in ["\"", name, "\":", value] {
        out.push_str(part);
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};
    use serde_json::Value;
    use shared::json::{Object, RawValue};

    use super::*;

    fn member<'a>(object: &'a str, name: &str) -> &'a str {
        Object::from_slice(object.as_bytes()).unwrap().get(name).unwrap().get()
    }

    fn elements_of(array: &str) -> Vec<&str> {
        let elements: Vec<&RawValue> = serde_json::from_str(array).unwrap();
        elements.into_iter().map(RawValue::get).collect()
    }

    #[test]
    fn edits_come_in_any_order_and_at_any_depth() {
        let source = r#" {"a" : {"x": [1 , 2,3], "y":"\"}"} , "b\\\"{":2,"c":[], "d":{ } } "#;
        let (a, d) = (member(source, "a"), member(source, "d"));
        let list = elements_of(member(a, "x"));
        let mut splice = Splice::of(source);
        splice.insert_at_root("e", "7");
        splice.insert(d, "z", "null");
        splice.insert(d, "z2", String::from("[]"));
        splice.replace(list[2], "4");
        splice.replace(list[0], "0");
        splice.replace(member(a, "y"), "\"\u{e9}\"");
        let expected =
            r#" {"a" : {"x": [0, 2, 4], "y":"é"} , "b\\\"{":2,"c":[], "d":{ "z":null,"z2":[]} ,"e":7} "#;
        let edited = splice.finish();
        assert_eq!(edited.replace(' ', ""), expected.replace(' ', ""));
        assert!(serde_json::from_str::<Value>(&edited).is_ok(), "{edited}");
    }

    #[test]
    fn an_edit_inside_of_a_replaced_value_and_one_of_another_text_have_no_effect() {
        let source = r#"{"a":{"x":1},"b":2,"c":[{"x":1}]}"#;
        let (a, c) = (member(source, "a"), elements_of(member(source, "c"))[0]);
        let mut splice = Splice::of(source);
        splice.replace(member(a, "x"), "5");
        splice.insert(a, "y", "6");
        splice.replace(a, "0");
        splice.insert(c, "y", "6");
        splice.replace(c, "[]");
        let other = r#"{"a":1}"#.to_owned();
        splice.replace(member(&other, "a"), "0");
        splice.insert(member(source, "b"), "y", "6");
        assert_eq!(splice.finish(), r#"{"a":0,"b":2,"c":[[]]}"#);
    }

    /// What happens to a member.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Fate {
        Stays,
        IsReplaced,
        HasElementsReplaced,
    }

    fn members() -> impl Strategy<Value = Vec<(String, Vec<String>, Fate)>> {
        let names = ["a", "\\\"", "b\\\\", "{", "}]", "\u{e9}", ":", ",\\u0022:"];
        let values =
            ["1", "-2.5e3", "\"x,}\"", "\"\\\\\\\"\"", "{}", "[ ]", "{\"k\" : [1, 2]}", "null", "true"];
        let fates = [Fate::Stays, Fate::IsReplaced, Fate::HasElementsReplaced];
        let member = (select(names.to_vec()), vec(select(values.to_vec()), 0..4), select(fates.to_vec()));
        vec(member, 0..8).prop_map(|members| {
            let spelled = |(at, (name, list, fate)): (usize, (&str, Vec<&str>, Fate))| {
                (format!("{name}{at}"), list.into_iter().map(str::to_owned).collect(), fate)
            };
            members.into_iter().enumerate().map(spelled).collect()
        })
    }

    proptest! {
        #[test]
        fn all_else_stays_byte_for_byte(members in members(), blanks in vec(select(vec!["", " ", "\n\t"]), 8)) {
            let [open, name, colon, value, comma, first, next, close] = [0, 1, 2, 3, 4, 5, 6, 7].map(|at| blanks[at]);
            let object = |members: &[String]| format!("{open}{{{}{close}}}", members.join(","));
            let list = |list: &[String]| format!("[{first}{}]", list.join(&format!("{next},{first}")));
            let spell = |spelled: &str, json: &str| format!("{name}\"{spelled}\"{colon}:{value}{json}{comma}");
            let source = object(&members.iter().map(|(name, values, _)| spell(name, &list(values))).collect::<Vec<_>>());
            let read = Object::from_slice(source.as_bytes()).unwrap();
            let raws: Vec<&str> = read.iter().map(|(_, raw)| raw.get()).collect();
            let mut splice = Splice::of(&source);
            let mut expected = Vec::new();
            for (raw, (name, values, fate)) in raws.iter().zip(&members).rev() {
                let kept: Vec<String> = match fate {
                    Fate::HasElementsReplaced => {
                        let kept = |(at, value): (usize, &String)| if at % 2 == 0 { "7".to_owned() } else { value.clone() };
                        values.iter().enumerate().map(kept).collect()
                    }
                    Fate::Stays | Fate::IsReplaced => values.clone(),
                };
                match fate {
                    Fate::Stays => {}
                    Fate::IsReplaced => splice.replace(raw, "\"new\""),
                    Fate::HasElementsReplaced => {
                        for element in elements_of(raw).into_iter().step_by(2) {
                            splice.replace(element, "7");
                        }
                    }
                }
                match fate {
                    Fate::IsReplaced => expected.insert(0, spell(name, "\"new\"")),
                    Fate::Stays | Fate::HasElementsReplaced => expected.insert(0, spell(name, &list(&kept))),
                }
            }
            splice.insert_at_root("new", "1");
            expected.push("\"new\":1".to_owned());
            let (edited, expected) = (splice.finish(), object(&expected));
            prop_assert!(serde_json::from_str::<Value>(&edited).is_ok(), "{edited}");
            let is_no_blank = |c: &char| !matches!(c, ' ' | '\n' | '\t');
            // An added member comes after the blanks before the closing brace; all other bytes stay the same.
            prop_assert_eq!(edited.chars().filter(is_no_blank).collect::<String>(), expected.chars().filter(is_no_blank).collect::<String>());
            prop_assert!(edited.len() == expected.len(), "{edited:?} {expected:?}");
            if blanks.iter().all(|blank| blank.is_empty()) {
                prop_assert_eq!(edited, expected);
            }
        }
    }
}
