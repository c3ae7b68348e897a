//! A call of a tool, read while it is written.
//!
//! The grammar makes certain that it is written as `{"name": "…", "arguments": {…}}`, up to where it is cut off.

use super::Piece;

/// A call in the making.
pub(crate) struct Call {
    /// Its place among the calls of its answer, from 0.
    index: usize,
    /// By this id the client will give the result.
    id: String,
    state: State,
}

enum State {
    /// With what was written so far.
    Name(String),
    Arguments(Object),
}

/// How deep in a JSON object its text has come.
#[derive(Default)]
struct Object {
    depth: usize,
    in_string: bool,
    escaped: bool,
    ended: bool,
}

const BEFORE_NAME: &str = "{\"name\": ";
/// It follows the closing quote of the name, inside of which every quote is escaped.
const BEFORE_ARGUMENTS: &str = "\", \"arguments\": ";

impl Call {
    pub(crate) fn new(index: usize, id: String) -> Self {
        Self { index, id, state: State::Name(String::new()) }
    }

    /// Whether the client has heard of it, which it does once the name is whole.
    pub(crate) fn is_told(&self) -> bool {
        matches!(self.state, State::Arguments(_))
    }

    /// Adds text and returns what became certain.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Piece> {
        match &mut self.state {
            State::Name(head) => {
                head.push_str(text);
                let Some((name, begun)) = split(head) else { return Vec::new() };
                let mut object = Object::default();
                let arguments = object.take(&begun);
                self.state = State::Arguments(object);
                let mut pieces = vec![Piece::Call { index: self.index, id: self.id.clone(), name }];
                pieces.extend(self.piece(arguments));
                pieces
            }
            State::Arguments(object) => {
                let arguments = object.take(text);
                self.piece(arguments).into_iter().collect()
            }
        }
    }

    fn piece(&self, arguments: &str) -> Option<Piece> {
        (!arguments.is_empty()).then(|| Piece::Arguments { index: self.index, text: arguments.to_owned() })
    }
}

/// The name, and what follows it of the arguments.
fn split(head: &str) -> Option<(String, String)> {
    let (quoted, begun) = head.split_once(BEFORE_ARGUMENTS)?;
    let (_, quoted) = quoted.split_once(BEFORE_NAME)?;
    let name = serde_json::from_str(&format!("{quoted}\"")).ok()?;
    Some((name, begun.to_owned()))
}

impl Object {
    /// As much of the text as belongs to the object.
    fn take<'a>(&mut self, text: &'a str) -> &'a str {
        if self.ended {
            return "";
        }
        for (place, character) in text.char_indices() {
            match character {
                _ if self.escaped => self.escaped = false,
                '\\' if self.in_string => self.escaped = true,
                '"' => self.in_string = !self.in_string,
                '{' if !self.in_string => self.depth += 1,
                '}' if !self.in_string => self.depth -= 1,
                _ => {}
            }
            if self.depth == 0 {
                self.ended = true;
                return &text[..=place];
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_comes_first_and_then_the_arguments_wherever_they_are_cut() {
        let arguments = r#"{"q": "}\"{", "in": {"n": [1, {}]}, "ü": ""}"#;
        let written = format!("\n{{\"name\": \"a\\\", \\\"b\", \"arguments\": {arguments}}}\n");
        for size in 1..written.chars().count() {
            let mut call = Call::new(3, "id".to_owned());
            let characters: Vec<char> = written.chars().collect();
            let mut pieces =
                characters.chunks(size).flat_map(|cut| call.push(&cut.iter().collect::<String>()));
            let first = pieces.next().unwrap();
            assert_eq!(first, Piece::Call { index: 3, id: "id".into(), name: "a\", \"b".into() });
            let rest: String = pieces
                .map(|piece| match piece {
                    Piece::Arguments { index: 3, text } => text,
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(rest, arguments);
        }
    }
}
