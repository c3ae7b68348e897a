//! Ids of earlier calls, which new calls must not repeat.

use std::sync::Arc;

use raw_json::RawString;

/// Ids of the calls in a request's conversation. Each is kept as an eight-byte digest, since an agent's conversation
/// has thousands. If two ids collide, a call gets a new id without need, which is harmless.
#[derive(Default)]
pub struct EarlierCalls(Vec<u64>);

impl EarlierCalls {
    /// Adds the id of a call, a JSON string.
    pub fn add(&mut self, token: &str) {
        self.0.push(Self::number_of(RawString::trusted(token)));
    }

    /// Ends the list of ids.
    pub fn complete(mut self) -> Arc<Self> {
        self.0.sort_unstable();
        self.0.shrink_to_fit();
        Arc::new(self)
    }

    /// Returns the bytes that the ids take.
    pub(crate) const fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<u64>()
    }

    /// Returns the digest of an id.
    pub fn number_of(id: RawString<'_>) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&blake3::hash(id.decoded().as_bytes()).as_bytes()[..8]);
        u64::from_le_bytes(first)
    }

    /// Returns whether a call's id has this digest.
    pub fn contains(&self, number: u64) -> bool {
        self.0.binary_search(&number).is_ok()
    }
}
