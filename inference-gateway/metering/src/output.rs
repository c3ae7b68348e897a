//! Bytes for the client, which are given out in pieces.

use bytes::{Bytes, BytesMut};

/// Largest output buffer kept for the next output.
const KEPT_OUTPUT_BYTES: usize = 32 << 10;
/// Size of a piece of output. A larger output goes in pieces, to see that a slow client still reads.
pub(super) const PIECE_BYTES: usize = 64 << 10;
/// Part of a larger output in one piece. The rest is copied each time, eight times its length in all.
const PIECES: usize = 8;

/// Output that the client has not taken yet.
#[derive(Default)]
pub struct Output(pub(super) BytesMut);

impl Output {
    /// Takes everything. Memory of a small output is used again.
    pub fn take(&mut self) -> Bytes {
        let large = self.0.capacity() > KEPT_OUTPUT_BYTES;
        if large { std::mem::take(&mut self.0).freeze() } else { self.0.split().freeze() }
    }

    /// Takes the next piece: all of a small output, and a part of a large one.
    pub fn take_piece(&mut self) -> Bytes {
        let length = PIECE_BYTES.max(self.0.len() / PIECES);
        if self.0.len() <= length {
            return self.take();
        }
        // Both parts are copied, since slices would keep the whole in memory.
        let piece = Bytes::copy_from_slice(&self.0[..length]);
        self.0 = BytesMut::from(&self.0[length..]);
        piece
    }

    /// Drops everything, for a client that left.
    pub fn discard(&mut self) {
        self.0.clear();
        if self.0.capacity() > KEPT_OUTPUT_BYTES {
            self.0 = BytesMut::new();
        }
    }
}
