//! The journal as a stream: additions of several entries each.

use super::records::damaged;
use crate::store::StoreError;

/// Additions to the journal read in a round trip: a few thousand entries where many are settled at once.
pub(super) const ADDITIONS_AT_ONCE: usize = 100;

/// An addition to the journal: the entries of a batch. The id begins with the number of the first entry.
pub(super) type Addition = (String, Vec<Vec<u8>>);

/// The number of the first entry, and the encoded entries.
pub(super) fn addition_of((id, fields): &Addition) -> Result<(u64, &[u8]), StoreError> {
    let number = id.split_once('-').and_then(|(number, _)| number.parse().ok());
    let text = fields.get(1).map(Vec::as_slice);
    number.zip(text).ok_or_else(|| damaged("a journal"))
}
