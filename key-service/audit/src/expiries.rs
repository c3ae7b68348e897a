//! Computes what a journal entry adds to the counters of its day. For an entry that corrects an earlier bill, this
//! requires the earlier bill.

use std::collections::HashMap;

use domain::{
    ledger::{Ending, Entry, REMEMBERED, Record, Settlement},
    usage::{self, Counts},
};
use shared::{ids::GenerationId, time::Timestamp};

use crate::bounds::LATE;

/// Maximum number of expiry bills to remember in case a capture corrects them. That many bills take about 30 MB.
const MOST_EXPIRIES: usize = 100_000;

/// Bills of expired holds. A capture that arrives later corrects such a bill.
pub(super) struct Expiries {
    bills: HashMap<GenerationId, Settlement>,
    /// `bills` has the expiry bills of all generations that were created since this time; `None` if there were too many
    /// to remember.
    known_from: Option<Timestamp>,
}

/// What an entry adds to the counters of its day.
pub(super) enum Adds {
    /// The entry adds exactly these counters.
    Counts(Box<Counts>),
    /// The entry may correct a bill that is not known.
    Unknown,
}

impl Expiries {
    /// Creates an empty collection for reading a journal from its start. If earlier entries may have been dropped,
    /// `begins_at` is the time of its first remaining entry.
    pub(super) fn new(begins_at: Option<Timestamp>) -> Self {
        let known_from = begins_at.map_or(Timestamp::from_millis(i64::MIN), |at| at.plus(LATE));
        Self { bills: HashMap::new(), known_from: Some(known_from) }
    }

    /// Returns what the next entry adds.
    pub(super) fn add(&mut self, generation: GenerationId, entry: &Entry) -> Adds {
        let new = || Adds::Counts(Box::new(usage::added(&Record::None, entry).counts));
        let bill = &entry.settlement;
        match bill.ending {
            Ending::Expired => {
                if self.bills.len() < MOST_EXPIRIES {
                    self.bills.insert(generation, bill.clone());
                } else {
                    self.known_from = None;
                }
                new()
            }
            Ending::Late => new(),
            Ending::Captured => match self.bills.remove(&generation) {
                Some(expired) => corrected(generation, &expired, entry),
                None if entry.delta != bill.charged => Adds::Unknown,
                None if self.known_from.is_some_and(|from| from <= generation.created_at()) => new(),
                None => Adds::Unknown,
            },
        }
    }
}

/// Returns what the capture of an expired generation adds. A capture may come so late that housekeeping may have
/// dropped the expiry's bill. Such a capture charges nothing and counts as a separate request.
fn corrected(generation: GenerationId, expired: &Settlement, entry: &Entry) -> Adds {
    let charges_nothing = entry.delta.nanos() == 0 && entry.settlement.charged.nanos() == 0;
    let is_remembered = entry.settlement.at <= generation.created_at().plus(REMEMBERED);
    let before = match (charges_nothing, expired.charged.nanos()) {
        (false, _) => Record::Closed(expired.clone()),
        (true, 0) if is_remembered => Record::Closed(expired.clone()),
        (true, 0) => return Adds::Unknown,
        (true, _) => Record::None,
    };
    Adds::Counts(Box::new(usage::added(&before, entry).counts))
}
