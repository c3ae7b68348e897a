//! The pieces that an event adds, and the oddities found in it.

use shared::json::RawValue;

use crate::{
    pieces::{oddity::Oddities, parts::Delta},
    stream::{Chunk, ChunkChoice},
};

#[derive(Default)]
pub(crate) struct Pieces<'a> {
    pub(crate) list: Vec<ChunkChoice<'a>>,
    pub(crate) odd: Oddities,
}

impl<'a> Pieces<'a> {
    /// Adds a piece of the choice at this place.
    pub(crate) fn push(&mut self, choice: usize, delta: Delta<'a>, logprobs: Option<&'a RawValue>) {
        let mut piece = ChunkChoice::of(delta, logprobs);
        piece.index = choice;
        self.list.push(piece);
    }

    /// Adds a piece of the only choice.
    pub(crate) fn add(&mut self, delta: Delta<'a>) {
        self.push(0, delta, None);
    }

    pub(crate) fn into_chunk(self, usage: Option<&'a RawValue>) -> Chunk<'a> {
        let mut chunk = Chunk::new(self.list, usage, None);
        chunk.odd = self.odd;
        chunk
    }
}
