//! Frees memory that was reserved for a body and not used.

use bytes::Bytes;

/// Maximum number of unused bytes that a body may keep. Copying the body would cost more than this memory.
const UNUSED: usize = 4 << 10;

/// Returns the written bytes. If far more memory was reserved, the bytes are copied to free it, because a body is kept
/// until its upstream answers.
pub(super) fn trimmed(written: Vec<u8>) -> Bytes {
    if written.capacity() - written.len() > UNUSED.max(written.len() / 8) {
        return Bytes::copy_from_slice(&written);
    }
    Bytes::from(written)
}
