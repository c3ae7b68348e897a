//! Ids of an answer's calls: the upstream's id, or a new id if the upstream's is missing or belongs to another call of
//! the conversation.
//!
//! Some servers number the calls of each answer from the start (`call_0`, `functions.read:0`). If two calls have the
//! same id, a client that tracks calls by id drops the second call, and asks for it forever.

use std::sync::Arc;

use raw_json::RawString;
use reply::EarlierCalls;
use shared::ids::GenerationId;

/// Length of a generated id in digits. Mistral demands exactly this length, and no other vendor refuses it.
const MADE_ID_CHARS: usize = 9;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Generates the ids of a choice's calls from the generation's random id. All pieces of a call get the same id, and no
/// other call gets it.
#[derive(Clone, Copy)]
pub(crate) struct MadeIds {
    pub(crate) generation: GenerationId,
    pub(crate) choice: usize,
}

impl MadeIds {
    /// Returns the id of this call. The id needs no escapes in JSON.
    pub(crate) fn spelled(self, call: u64) -> String {
        let mut hasher = blake3::Hasher::new_derive_key("faregate 2026 ids of tool calls");
        hasher.update(self.generation.as_bytes());
        hasher.update(&(self.choice as u64).to_le_bytes()).update(&call.to_le_bytes());
        let mut number = u128::from_le_bytes(first_bytes(&hasher.finalize()));
        let mut digit = || {
            let digit = DIGITS[(number % 62) as usize];
            number /= 62;
            char::from(digit)
        };
        (0..MADE_ID_CHARS).map(|_| digit()).collect()
    }
}

/// Ids of an answer's calls, for a dialect whose clients track calls by id.
pub(crate) struct AnswerCallIds {
    made: MadeIds,
    earlier: Arc<EarlierCalls>,
    /// Digests of the upstream's ids that this answer passed on.
    passed: Vec<u64>,
}

impl AnswerCallIds {
    pub(crate) const fn new(generation: GenerationId, earlier: Arc<EarlierCalls>) -> Self {
        Self { made: MadeIds { generation, choice: 0 }, earlier, passed: Vec::new() }
    }

    /// Returns the id of the next call, as spelled in JSON without quotes. `own` is the upstream's.
    pub(crate) fn next(&mut self, own: Option<RawString<'_>>, place: u64) -> String {
        let own = own.filter(|own| !own.is_empty() && self.is_new(*own));
        own.map_or_else(|| self.made.spelled(place), |own| own.sound().into_owned())
    }

    fn is_new(&mut self, id: RawString<'_>) -> bool {
        let number = EarlierCalls::number_of(id);
        let is_new = !self.earlier.contains(number) && !self.passed.contains(&number);
        if is_new {
            self.passed.push(number);
        }
        is_new
    }
}

fn first_bytes(hash: &blake3::Hash) -> [u8; 16] {
    let mut first = [0; 16];
    first.copy_from_slice(&hash.as_bytes()[..16]);
    first
}
