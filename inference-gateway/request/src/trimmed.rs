//! Frees memory of bodies that was reserved and not used.

use bytes::Bytes;

/// Unused bytes that a body may keep, since a copy would cost more.
const UNUSED: usize = 4 << 10;

/// Returns the written bytes. They are copied if they are far fewer than the reserved ones, since a body is kept until
/// its upstream answers.
pub(super) fn trimmed(written: Vec<u8>) -> Bytes {
    if written.capacity() - written.len() > UNUSED.max(written.len() / 8) {
        return Bytes::copy_from_slice(&written);
    }
    Bytes::from(written)
}
