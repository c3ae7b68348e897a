//! A tool call, parsed during its generation.
//!
//! By the grammar a call is `{"name": "…", "arguments": {…}}` on a line of its own, and may be cut off.

use super::Delta;

const BEFORE_NAME: &str = "{\"name\": ";
/// Text between name and arguments. No name holds this text, as quotes inside of a name are escaped.
const BEFORE_ARGUMENTS: &str = "\", \"arguments\": ";
/// Text behind the arguments.
const END: &str = "}\n";

/// Tool call in the making.
pub(crate) struct PartialToolCall {
    index: usize,
    id: String,
    /// True once the beginning was sent, which waits for the whole name.
    is_begun: bool,
    /// Text that was not handed out.
    held: String,
}

impl PartialToolCall {
    pub(crate) fn new(index: usize, id: String) -> Self {
        Self { index, id, is_begun: false, held: String::new() }
    }

    /// Adds text and returns the deltas that are certain now.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Delta> {
        self.held.push_str(text);
        let mut deltas = Vec::new();
        if !self.is_begun {
            let Some((name, rest)) = split(&self.held) else { return deltas };
            deltas.push(Delta::ToolCall { index: self.index, id: self.id.clone(), name });
            (self.is_begun, self.held) = (true, rest);
        }
        // The text behind the arguments may have begun.
        let certain = self.held.trim_end_matches(['}', '\n']).len();
        let held = self.held.split_off(certain);
        let certain = std::mem::replace(&mut self.held, held);
        deltas.extend(self.arguments(certain));
        deltas
    }

    /// Returns the rest of the arguments of a call that is complete, or was cut off.
    pub(crate) fn finish(mut self, is_complete: bool) -> Option<Delta> {
        let held = std::mem::take(&mut self.held);
        let rest = if is_complete { held.strip_suffix(END).unwrap_or(&held) } else { &held };
        self.is_begun.then(|| self.arguments(rest.to_owned())).flatten()
    }

    fn arguments(&self, text: String) -> Option<Delta> {
        (!text.is_empty()).then_some(Delta::Arguments { index: self.index, text })
    }
}

/// Splits the name from the text of the arguments.
fn split(head: &str) -> Option<(String, String)> {
    let (quoted, rest) = head.split_once(BEFORE_ARGUMENTS)?;
    let (_, quoted) = quoted.split_once(BEFORE_NAME)?;
    Some((serde_json::from_str(&format!("{quoted}\"")).ok()?, rest.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_comes_first_and_then_the_arguments_wherever_they_are_cut() {
        let arguments = r#"{"q": "}\"{", "in": {"n": [1, {}]}, "ü": {}}"#;
        let written = format!("\n{{\"name\": \"a\\\", \\\"b\", \"arguments\": {arguments}}}\n");
        let characters: Vec<char> = written.chars().collect();
        for size in 1..characters.len() {
            let mut call = PartialToolCall::new(3, "id".to_owned());
            let chunks = characters.chunks(size);
            let mut deltas: Vec<Delta> =
                chunks.flat_map(|chunk| call.push(&chunk.iter().collect::<String>())).collect();
            deltas.extend(call.finish(true));
            let name = "a\", \"b".to_owned();
            assert_eq!(deltas.remove(0), Delta::ToolCall { index: 3, id: "id".to_owned(), name });
            let text = |delta| match delta {
                Delta::Arguments { index: 3, text } => text,
                other => panic!("{other:?}"),
            };
            assert_eq!(deltas.into_iter().map(text).collect::<String>(), arguments);
        }
    }
}
