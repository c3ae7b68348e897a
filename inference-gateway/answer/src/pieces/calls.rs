//! Puts streamed tool calls in order, so that a client that joins pieces gets each id and name once. A call without an
//! id gets an id, since the client needs it to answer the call.

use bytes::BytesMut;
use raw_json::RawString;

use super::{
    call_ids::MadeIds,
    parts::{NO_ARGUMENTS, ToolCall},
    signed::put_call_signature,
};
use crate::generation::{put, put_number};

/// Maximum number of calls that are tracked for a choice: more than any model makes. Further calls pass unchanged.
const MOST_CALLS: usize = 256;

/// Tool calls of a choice that were sent so far. It has no `Debug`, since names are the client's words.
#[derive(Default)]
pub(crate) struct Calls(Vec<SentCall>);

struct SentCall {
    /// Index given by the upstream.
    upstream: u64,
    /// Index sent to the client.
    index: u64,
    /// Id as the upstream spelled it; empty if it was generated here.
    id: String,
    /// Name as the upstream spelled it; empty until a piece has a name.
    name: String,
    /// Whether some of the arguments were sent.
    has_arguments: bool,
}

/// Whether and how to write the id of a piece's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceId {
    /// Do not write the id, since an earlier piece contained it.
    Sent,
    /// Write the id that the upstream gave.
    Upstream,
    /// Write a generated id, since the upstream gave none.
    Made,
}

/// The call of a piece, and which of its members the client still needs.
pub(crate) struct ToolCallDelta {
    pub(crate) index: u64,
    pub(crate) id: PieceId,
    /// Whether no earlier piece contained the name.
    pub(crate) name_is_new: bool,
}

impl Calls {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a piece of a call, found at `place` in the array of calls.
    ///
    /// SDKs merge pieces with the same index by concatenating their texts, and some use the index as a position in a
    /// list. So indexes count from zero. An id or a name that is repeated (llama-cpp-python does so in every piece) is
    /// sent once, and a second call under the same index (as from Ollama) gets its own index.
    pub(crate) fn place(&mut self, call: &ToolCall<'_>, place: usize) -> ToolCallDelta {
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
            let index = self.0.len() as u64;
            let (id, name) = (id.to_owned(), name.to_owned());
            let name_is_new = !name.is_empty();
            self.0.push(SentCall { upstream, index, id, name, has_arguments: adds_arguments });
            return ToolCallDelta { index, id: own_id, name_is_new };
        };
        let call = &mut self.0[at];
        // A name may come in pieces, so the new part belongs to the same call.
        let name_is_new = !name.is_empty() && call.name != name;
        if call.name.is_empty() {
            name.clone_into(&mut call.name);
        }
        call.has_arguments |= adds_arguments;
        ToolCallDelta { index: call.index, id: PieceId::Sent, name_is_new }
    }

    /// Lists the calls that have no arguments so far. Each tool call is listed only once, however often this method is
    /// called.
    pub(crate) fn without_arguments(&mut self) -> impl Iterator<Item = u64> {
        let unfilled = self.0.iter_mut().filter(|call| !call.has_arguments);
        unfilled.map(|call| {
            call.has_arguments = true;
            call.index
        })
    }
}

impl SentCall {
    /// Returns whether a piece with this id and name begins another call. A new id is not enough, since some servers
    /// make up an id for every piece. Without ids, a second name after arguments begins another call.
    fn is_another(&self, id: &str, name: &str) -> bool {
        let differs = if self.id.is_empty() {
            id.is_empty() && self.has_arguments
        } else {
            self.id != id && !id.is_empty()
        };
        differs && !name.is_empty() && !self.name.is_empty()
    }
}

impl ToolCall<'_> {
    /// Writes a call in a whole answer, with all members.
    pub(crate) fn write_whole(
        &self,
        place: usize,
        made: MadeIds,
        signature: Option<&str>,
        out: &mut BytesMut,
    ) {
        put(out, r#"{"id":"#);
        match self.id {
            Some(id) if !id.is_empty() => id.write(out),
            Some(_) | None => put_made(made, place as u64, out),
        }
        put(out, r#","type":"function","function":{"name":"#);
        self.name.unwrap_or(RawString::EMPTY).write(out);
        put(out, r#","arguments":"#);
        self.arguments().filter(|arguments| !arguments.is_empty()).unwrap_or(NO_ARGUMENTS).write(out);
        put(out, "}");
        if let Some(signature) = signature {
            put_call_signature(signature, out);
        }
        put(out, "}");
    }

    /// Writes a piece of a call: its index, its arguments, and members not sent before. As in OpenAI's streams, every
    /// piece has a `function` with `arguments`, since many clients do not check whether these members exist.
    pub(crate) fn write_piece(
        &self,
        piece: &ToolCallDelta,
        made: MadeIds,
        signature: Option<&str>,
        out: &mut BytesMut,
    ) {
        put(out, r#"{"index":"#);
        put_number(out, piece.index);
        if piece.id != PieceId::Sent {
            put(out, r#","id":"#);
            match self.id.filter(|_| piece.id == PieceId::Upstream) {
                Some(id) => id.write(out),
                None => put_made(made, piece.index, out),
            }
            put(out, r#","type":"function""#);
        }
        put(out, r#","function":{"#);
        if let Some(name) = self.name.filter(|_| piece.name_is_new) {
            put(out, r#""name":"#);
            name.write(out);
            put(out, ",");
        }
        put(out, r#""arguments":"#);
        self.arguments().unwrap_or(RawString::EMPTY).write(out);
        put(out, "}");
        if let Some(signature) = signature {
            put_call_signature(signature, out);
        }
        put(out, "}");
    }
}

fn put_made(made: MadeIds, call: u64, out: &mut BytesMut) {
    put(out, "\"");
    put(out, &made.spelled(call));
    put(out, "\"");
}

/// Returns a text as spelled, without quotes; empty if it is absent.
fn text_or_empty(text: Option<RawString<'_>>) -> &str {
    text.map_or("", RawString::inner)
}
