//! Bytes for the client, delivered in pieces.

use bytes::{Bytes, BytesMut};

/// Largest output buffer to reuse.
const KEPT_OUTPUT_BYTES: usize = 32 << 10;
/// Size of a piece of output. Larger output is sent in pieces, to see whether a slow client still reads.
pub(super) const PIECE_BYTES: usize = 64 << 10;
/// The next piece of a large output is the rest divided by this. Taking a piece copies the rest, which adds up to about
/// eight times the output's length.
const PIECES: usize = 8;

/// Output that the client has not received yet.
#[derive(Default)]
pub struct Output(pub(super) BytesMut);

impl Output {
    /// Takes everything. A small buffer is reused.
    pub fn take(&mut self) -> Bytes {
        let large = self.0.capacity() > KEPT_OUTPUT_BYTES;
        if large { std::mem::take(&mut self.0).freeze() } else { self.0.split().freeze() }
    }

    /// Takes the next piece: all of a small output, or part of a large one.
    pub fn take_piece(&mut self) -> Bytes {
        let length = PIECE_BYTES.max(self.0.len() / PIECES);
        if self.0.len() <= length {
            return self.take();
        }
        // Copies both parts, since slices would keep the whole buffer in memory.
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
