//! One call of a tool, as the model writes it and as the OpenAI API tells it.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dice::Dice;

/// A call that the model asks the client to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolCall {
    /// Its place among the calls of its answer, from 0.
    pub(crate) index: usize,
    /// By this id the client will give the result.
    pub(crate) id: String,
    pub(crate) name: String,
    /// A JSON object, as the model spelled it.
    pub(crate) arguments: String,
}

#[derive(Deserialize)]
struct Written<'a> {
    name: String,
    #[serde(borrow)]
    arguments: &'a RawValue,
}

impl ToolCall {
    /// Reads `{"name": …, "arguments": {…}}`; anything else is no call.
    pub(crate) fn parse(written: &str, index: usize, dice: &mut Dice) -> Option<Self> {
        let Written { name, arguments } = serde_json::from_str(written).ok()?;
        let arguments = arguments.get().to_owned();
        arguments.starts_with('{').then(|| Self {
            index,
            id: format!("call_{:016x}", dice.roll()),
            name,
            arguments,
        })
    }
}
