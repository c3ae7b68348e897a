//! A whole answer of another API than chat, in pieces.

use shared::json::RawValue;

use crate::pieces::parts::Delta;

/// Receives the pieces of a whole answer: what each adds, and the log probabilities.
pub(crate) type Pieces<'t> = &'t mut dyn FnMut(Delta<'_>, Option<&RawValue>);
