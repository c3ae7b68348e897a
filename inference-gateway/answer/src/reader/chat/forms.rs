//! Unusual errors, usage and ends of servers with the chat API.

use shared::{
    generation::FinishReason,
    json::{Kind, Object, RawValue},
};

use crate::{
    pieces::{loose::Raw, oddity::Oddity},
    reader::pieces::Pieces,
    stream::ChunkChoice,
};

/// Finds usage within the objects that vendors add to their last chunk.
pub(super) fn of_vendor(payload: &[u8]) -> Raw<'_> {
    let members = Object::from_slice(payload).ok()?;
    let inner = |value: &'_ RawValue| Kind::of(value) == Kind::Object;
    let objects: Vec<&RawValue> =
        members.iter().map(|(_, value)| value).filter(|value| inner(value)).collect();
    objects
        .into_iter()
        .find_map(|value| Object::from_raw(value).ok()?.get("usage").filter(|usage| inner(usage)))
}

impl Pieces<'_> {
    /// Keeps one finish reason of the only choice, at its last piece. It is the first reason other than `stop`, if
    /// there is one.
    pub(super) fn end_once(&mut self) {
        let told = |piece: &ChunkChoice<'_>| piece.finish;
        if self.list.iter().filter_map(told).count() < 2 {
            return;
        }
        self.odd.add(Oddity::ChoicesMerged);
        let other = self.list.iter().filter_map(told).find(|reason| *reason != FinishReason::Stop);
        let stop = self.list.iter_mut().fold(None, |stop, piece| {
            piece.finish = None;
            stop.or(piece.stop.take())
        });
        if let Some(last) = self.list.last_mut() {
            last.finish = Some(other.unwrap_or(FinishReason::Stop));
            last.stop = stop;
        }
    }
}
