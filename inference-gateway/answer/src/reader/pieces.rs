//! A whole answer of another API than chat, in pieces.

use shared::json::RawValue;

use crate::pieces::parts::Delta;

/// Members of a whole answer besides its output, as the upstream spelled them.
pub(crate) struct WholeAnswer<'a> {
    pub(crate) word: &'a str,
    pub(crate) usage: Option<&'a RawValue>,
    pub(crate) model: Option<&'a RawValue>,
}

/// Receives the pieces of a whole answer: what each adds, and the log probabilities.
pub(crate) type Pieces<'t> = &'t mut dyn FnMut(Delta<'_>, Option<&RawValue>);
