//! The revisions of records, as far as the writer knows them. Guards on these records can be checked without reading
//! them.

use foldhash::HashMap;

use crate::records::Revision;

/// Maximum number of revisions to keep, which take about 15 MiB. When there are more, all are forgotten; the revisions
/// that are in use are soon read again.
const MOST: usize = 128 * 1024;

/// For each key, the revision that the record had when the writer last read or wrote it; `None` if there was no record.
#[derive(Default)]
pub(super) struct Revisions(HashMap<Box<[u8]>, Option<Revision>>);

impl Revisions {
    /// Returns whether the record with this key is known to have this revision.
    pub(super) fn has(&self, key: &[u8], seen: Option<Revision>) -> bool {
        self.0.get(key).is_some_and(|known| *known == seen)
    }

    /// Keeps the revision of a record.
    pub(super) fn put(&mut self, key: &[u8], revision: Option<Revision>) {
        if let Some(known) = self.0.get_mut(key) {
            *known = revision;
            return;
        }
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(key.into(), revision);
    }

    /// Forgets the records whose keys begin with these bytes.
    pub(super) fn forget_all(&mut self, beginning: &[u8]) {
        self.0.retain(|key, _| !key.starts_with(beginning));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
