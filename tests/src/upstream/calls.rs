//! Tool calls in scripted answers: names and arguments.

use serde::{Deserialize, Serialize};

/// A tool call that a script makes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// Name of the tool.
    pub name: String,
    /// Its arguments: JSON, or the text of a custom tool.
    pub arguments: String,
}

impl ScriptedCall {
    /// Returns the arguments in the two pieces in which they are sent.
    pub(super) fn halves(&self) -> (String, String) {
        let half = self.arguments.chars().count() / 2;
        let middle = self.arguments.char_indices().nth(half).map_or(0, |(at, _)| at);
        let (first, last) = self.arguments.split_at(middle);
        (first.to_owned(), last.to_owned())
    }
}
