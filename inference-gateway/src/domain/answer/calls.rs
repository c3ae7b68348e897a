//! Streamed tool calls put in order, so that a client that joins their pieces gets each id and each name once; and ids for
//! calls that come without one, which clients could not answer.

use bytes::BytesMut;
use shared::ids::GenerationId;

use super::{
    parts::{RawString, ToolCall},
    put,
};

/// Calls of one choice that are kept apart; those beyond it pass as they came. More than any model makes in one answer.
const MOST_CALLS: usize = 256;

/// Bytes of an id that is made here, written as hexadecimal digits.
const ID_BYTES: usize = 16;

/// Makes the ids of one choice's calls. They follow from the generation's id, which is made from chance, so that every piece
/// of a call has the same one and no other call has it.
#[derive(Clone, Copy)]
pub(super) struct MadeIds {
    pub(super) generation: GenerationId,
    pub(super) choice: usize,
}

impl MadeIds {
    /// Writes the id of this call as a JSON string.
    pub(super) fn write(self, call: u64, out: &mut BytesMut) {
        let mut hasher = blake3::Hasher::new_derive_key("faregate 2026 ids of tool calls");
        hasher.update(self.generation.as_bytes());
        hasher.update(&(self.choice as u64).to_le_bytes()).update(&call.to_le_bytes());
        let id = hasher.finalize().to_hex();
        put(out, "\"call_");
        put(out, &id[..2 * ID_BYTES]);
        put(out, "\"");
    }
}

/// Tool calls of a choice that were sent so far. Has no `Debug`, as names are the client's own words.
#[derive(Default)]
pub(super) struct Calls(Vec<SentCall>);

struct SentCall {
    /// Its index as the upstream counts.
    upstream: u64,
    /// Its index as the client reads it.
    index: u64,
    /// The upstream's, as it was spelled; empty where it gave none before another was made.
    id: String,
    /// As it was spelled; empty before a piece had one.
    name: String,
    /// Some of its arguments were sent.
    has_arguments: bool,
}

/// The id in a piece of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceId {
    /// An earlier piece had it.
    Sent,
    /// The piece's own is to be sent.
    Upstream,
    /// The upstream gives none: one that is made is to be sent.
    Made,
}

/// Where a piece belongs, and what of it the client has not read before.
pub(super) struct ToolCallDelta {
    /// The call, as the client counts.
    pub(super) index: u64,
    /// The id that is to be sent.
    pub(super) id: PieceId,
    /// True if its name is to be sent.
    pub(super) name_is_new: bool,
}

impl Calls {
    /// Takes in a piece that stands at this place of its array.
    ///
    /// SDKs join what has one index, texts end to end. So an id or a name that is repeated, as llama-cpp-python does with
    /// every piece, is sent once; and another call under the same index, as Ollama has sent, gets an index of its own.
    pub(super) fn place(&mut self, call: &ToolCall<'_>, place: usize) -> ToolCallDelta {
        let upstream = call.index(place);
        let (id, name) = (text_or_empty(call.id()), text_or_empty(call.name()));
        let adds_arguments = !text_or_empty(call.arguments()).is_empty();
        let own_id = if id.is_empty() { PieceId::Made } else { PieceId::Upstream };
        let known = self.0.iter().rposition(|known| known.upstream == upstream);
        let known = known.filter(|at| !self.0[*at].is_another(id, name));
        let Some(at) = known else {
            if self.0.len() == MOST_CALLS {
                let id = if id.is_empty() && name.is_empty() { PieceId::Sent } else { own_id };
                return ToolCallDelta { index: upstream, id, name_is_new: true };
            }
            let index = self.free_index(upstream);
            let (id, name) = (id.to_owned(), name.to_owned());
            let name_is_new = !name.is_empty();
            self.0.push(SentCall { upstream, index, id, name, has_arguments: adds_arguments });
            return ToolCallDelta { index, id: own_id, name_is_new };
        };
        let call = &mut self.0[at];
        // The new part goes on: a name may come in pieces.
        let name_is_new = !name.is_empty() && call.name != name;
        if call.name.is_empty() {
            name.clone_into(&mut call.name);
        }
        call.has_arguments |= adds_arguments;
        ToolCallDelta { index: call.index, id: PieceId::Sent, name_is_new }
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

impl SentCall {
    /// Returns whether a piece with this id and name begins another call. A new id alone does not begin one: some servers
    /// make one up for every piece. Of calls without ids, one that is named after arguments is another one.
    fn is_another(&self, id: &str, name: &str) -> bool {
        let differs = if self.id.is_empty() {
            id.is_empty() && self.has_arguments
        } else {
            self.id != id && !id.is_empty()
        };
        differs && !name.is_empty()
    }
}

/// A text as it was spelled, without its quotes; empty where there is none.
fn text_or_empty(text: Option<RawString<'_>>) -> &str {
    text.map_or("", RawString::inner)
}
