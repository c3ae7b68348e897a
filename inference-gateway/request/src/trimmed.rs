//! Bodies without the room that was not written.

use bytes::Bytes;

/// Bytes that a body may take for nothing.
const UNUSED: usize = 4 << 10;

/// The bytes that were written, in memory of their own if they are far fewer than there was room for: a body is kept for as long
/// as its upstream takes to answer.
pub(super) fn trimmed(written: Vec<u8>) -> Bytes {
    if written.capacity() - written.len() > UNUSED.max(written.len() / 8) {
        return Bytes::copy_from_slice(&written);
    }
    Bytes::from(written)
}
