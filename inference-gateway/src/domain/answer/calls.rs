//! Streamed tool calls put in order, so that a client that joins their pieces gets each id and each name once.

use super::parts::{Spelled, ToolCall};

/// Calls of one choice that are kept apart; those beyond it pass as they came. More than any model makes in one answer.
const MOST_CALLS: usize = 256;

/// What was sent of a choice's calls. Has no `Debug`, as names are what a client said.
#[derive(Default)]
pub(super) struct Calls(Vec<Call>);

struct Call {
    /// Its index as the upstream counts.
    upstream: u64,
    /// Its index as the client reads it.
    index: u64,
    /// As they were spelled; empty while they were not said.
    id: String,
    name: String,
}

/// Where a piece belongs, and what of it the client has not read before.
pub(super) struct Piece {
    /// The call, as the client counts.
    pub(super) index: u64,
    /// Whether its id is to be sent.
    pub(super) id_is_new: bool,
    /// Whether its name is to be sent.
    pub(super) name_is_new: bool,
}

impl Calls {
    /// Takes in a piece that stands at this place of its array.
    ///
    /// SDKs join what has one index, texts end to end. So an id or a name that is repeated, as llama-cpp-python does with
    /// every piece, is sent once; and another call under the same index, as Ollama has sent, gets an index of its own.
    pub(super) fn place(&mut self, call: &ToolCall<'_>, place: usize) -> Piece {
        let upstream = call.index(place);
        let (id, name) = (said(call.id()), said(call.name()));
        let known = self.0.iter().rposition(|known| known.upstream == upstream);
        let known = known.filter(|at| !self.0[*at].is_another(id, name));
        let at = match known {
            Some(at) => at,
            None if self.0.len() == MOST_CALLS => {
                return Piece { index: upstream, id_is_new: true, name_is_new: true };
            }
            None => {
                let index = self.free_index(upstream);
                self.0.push(Call { upstream, index, id: String::new(), name: String::new() });
                self.0.len() - 1
            }
        };
        let call = &mut self.0[at];
        let id_is_new = call.id.is_empty() && !id.is_empty();
        if id_is_new {
            id.clone_into(&mut call.id);
        }
        // What differs goes on: a name may come in pieces.
        let name_is_new = !name.is_empty() && call.name != name;
        if call.name.is_empty() {
            name.clone_into(&mut call.name);
        }
        Piece { index: call.index, id_is_new, name_is_new }
    }

    /// The upstream's index, or the next one where that is taken.
    fn free_index(&self, upstream: u64) -> u64 {
        if self.0.iter().any(|call| call.index == upstream) {
            self.0.iter().map(|call| call.index.saturating_add(1)).max().unwrap_or(upstream)
        } else {
            upstream
        }
    }
}

impl Call {
    /// Whether a piece of this id and name begins another call. A new id alone does not: some servers make one up for
    /// every piece.
    fn is_another(&self, id: &str, name: &str) -> bool {
        !self.id.is_empty() && !id.is_empty() && self.id != id && !name.is_empty()
    }
}

/// A text as it was spelled, without its quotes; empty where there is none.
fn said(text: Option<Spelled<'_>>) -> &str {
    text.map_or("", Spelled::inner)
}
