//! Remembers the bills of generations, to check entries that replace an earlier bill.

use std::collections::{HashMap, VecDeque};

use shared::ids::GenerationId;

use crate::ledger::{Ending, Entry};

/// Maximum number of bills remembered to detect double billing: a few minutes of the busiest account, in 16 MB.
const MOST_BILLS: usize = 200_000;

/// What each generation has been billed so far: for the latest captures, and for the latest expiries, whose bills a
/// capture may replace.
#[derive(Debug)]
pub(super) struct Bills {
    changes: HashMap<GenerationId, i128>,
    /// Final bills, oldest first.
    captured: VecDeque<GenerationId>,
    /// Bills of expiries, oldest first. Captures may have replaced some of them.
    expired: VecDeque<GenerationId>,
    /// Whether no bill has been forgotten.
    complete: bool,
}

impl Bills {
    /// Creates an empty list of bills. The journal is `complete` if it still has its first entries.
    pub(super) fn new(complete: bool) -> Self {
        let (captured, expired) = (VecDeque::new(), VecDeque::new());
        Self { changes: HashMap::new(), captured, expired, complete }
    }

    /// Adds an entry. If the entry bills another amount than the generation's entries add up to, returns that sum. The
    /// first known entry of a generation proves nothing if it may correct an entry that was forgotten or dropped.
    pub(super) fn disproves(&mut self, generation: GenerationId, entry: &Entry) -> Option<i128> {
        if !entry.settlement.ending.is_bill() {
            return None;
        }
        let (delta, charged) =
            (i128::from(entry.delta.nanos()), i128::from(entry.settlement.charged.nanos()));
        let before = self.changes.get(&generation).copied();
        if before.is_some() && (delta, charged) == (0, 0) {
            // The earlier bill may have been dropped, so this capture is recorded but charges nothing.
            return None;
        }
        let sum = before.unwrap_or_default() + delta;
        let is_correction = before.is_none() && entry.delta != entry.settlement.charged;
        let is_proven = self.complete || !is_correction;
        self.changes.insert(generation, charged);
        match entry.settlement.ending {
            Ending::Captured | Ending::Late => self.captured.push_back(generation),
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
