//! Bills of generations, as far as entries tell what a bill replaces.

use std::collections::{HashMap, VecDeque};

use shared::ids::GenerationId;

use crate::ledger::{Ending, Entry};

/// Bills that are remembered, so that one that is billed twice is found: those of some minutes of the busiest account, in 16 MB.
const MOST_BILLS: usize = 200_000;

/// The sums of the changes of the generations that were billed last, and of those whose lease ran out, which a late capture
/// bills again.
#[derive(Debug)]
pub(super) struct Bills {
    changes: HashMap<GenerationId, i128>,
    /// Final bills, the oldest first.
    captured: VecDeque<GenerationId>,
    /// Bills of expiries, the oldest first. Some of them are captured by now.
    expired: VecDeque<GenerationId>,
    /// True while no bill was forgotten.
    complete: bool,
}

impl Bills {
    /// Bills of a journal, which is `complete` if no entries were dropped at the beginning.
    pub(super) fn new(complete: bool) -> Self {
        let (captured, expired) = (VecDeque::new(), VecDeque::new());
        Self { changes: HashMap::new(), captured, expired, complete }
    }

    /// The sum of the changes of a generation, if the entry bills another amount. The first entry of a generation that is not
    /// known any more, or from before the journal, proves nothing where it may correct an earlier one.
    pub(super) fn disproves(&mut self, generation: GenerationId, entry: &Entry) -> Option<i128> {
        let (delta, charged) =
            (i128::from(entry.delta.nanos()), i128::from(entry.settlement.charged.nanos()));
        let before = self.changes.get(&generation).copied();
        if before.is_some() && (delta, charged) == (0, 0) {
            // A capture of an age at which the earlier bill may be forgotten is recorded, but charges nothing.
            return None;
        }
        let sum = before.unwrap_or_default() + delta;
        let is_correction = before.is_none() && entry.delta != entry.settlement.charged;
        let is_proven = self.complete || !is_correction;
        self.changes.insert(generation, charged);
        match entry.settlement.ending {
            Ending::Captured => self.captured.push_back(generation),
            Ending::Expired => self.expired.push_back(generation),
        }
        self.forget();
        (is_proven && sum != charged).then_some(sum)
    }

    fn forget(&mut self) {
        for bills in [&mut self.captured, &mut self.expired] {
            if bills.len() > MOST_BILLS
                && let Some(oldest) = bills.pop_front()
            {
                self.changes.remove(&oldest);
                self.complete = false;
            }
        }
    }
}
