//! The memory of an answer, taken from a budget that all answers share.
//!
//! Small answers take nothing from the budget, so most requests never touch it.

use std::time::Duration;

use bytes::Bytes;
use shared::ids::AccountId;
use shared_door::admission::{Owner, Permit, Quota};
use tokio::time::Instant;

/// Bytes of an answer that do not count: enough for an ordinary whole answer and its copy, or for the event that a
/// stream waits for.
const UNCOUNTED_BYTES: usize = 64 << 10;
/// Bytes taken at once. Larger steps lock the accounts' shares less often.
const STEP_BYTES: usize = 256 << 10;
/// Maximum total time that a whole answer waits for memory. The answer was generated and will be billed, so it is worth
/// waiting for other answers to finish. Meanwhile, its upstream has to wait as well.
const WAIT_FOR_MEMORY: Duration = Duration::from_secs(10);

/// Part of the budget that an answer holds until it is dropped.
pub(super) struct AnswerPermit {
    permit: Permit,
    /// Time that the answer may still wait for memory.
    timeout: Duration,
}

impl AnswerPermit {
    /// Starts without memory, for an answer of this account.
    pub(super) fn new(budget: &Quota, account: AccountId) -> Self {
        Self { permit: budget.empty_permit(Owner::Account(account)), timeout: WAIT_FOR_MEMORY }
    }

    /// Takes memory for exactly `bytes`. Returns whether the budget had that much; otherwise the answer keeps what it
    /// had.
    pub(super) fn hold(&mut self, bytes: usize) -> bool {
        match counted(bytes).checked_sub(self.permit.amount()) {
            Some(0) => true,
            Some(more) => self.permit.try_grow(more),
            None => {
                self.permit.shrink_to(counted(bytes));
                true
            }
        }
    }

    /// Takes memory for `bytes`, waiting for other answers if necessary. Returns whether it came in time.
    pub(super) async fn wait_for(&mut self, bytes: usize) -> bool {
        if self.hold(bytes) {
            return true;
        }
        let began = Instant::now();
        let more = counted(bytes).saturating_sub(self.permit.amount());
        let found = self.permit.grow_until(more, began + self.timeout).await;
        self.timeout = self.timeout.saturating_sub(began.elapsed());
        found
    }

    /// Lets a large answer keep its part of the budget until the connection has sent it.
    pub(super) fn leave_with(&mut self, bytes: Bytes) -> Bytes {
        if bytes.len() <= UNCOUNTED_BYTES {
            return bytes;
        }
        self.permit.split(bytes.len().next_multiple_of(STEP_BYTES)).kept_by(bytes)
    }
}

fn counted(bytes: usize) -> usize {
    if bytes <= UNCOUNTED_BYTES { 0 } else { bytes.next_multiple_of(STEP_BYTES) }
}

#[cfg(test)]
mod tests {
    use shared::clock::System;
    use tokio::time::sleep;

    use super::*;

    fn account() -> AccountId {
        AccountId::generate(&System)
    }

    #[test]
    fn small_answers_take_nothing_and_large_ones_give_all_back() {
        let budget = Quota::new(4 * STEP_BYTES, 4 * STEP_BYTES);
        let (mut small, mut large) =
            (AnswerPermit::new(&budget, account()), AnswerPermit::new(&budget, account()));
        assert!(large.hold(3 * STEP_BYTES + 1) && small.hold(UNCOUNTED_BYTES));
        assert!(!small.hold(UNCOUNTED_BYTES + 1));
        assert!(large.hold(3 * STEP_BYTES) && small.hold(UNCOUNTED_BYTES + 1));
        drop(large);
        assert!(small.hold(4 * STEP_BYTES) && !small.hold(4 * STEP_BYTES + 1));
        assert!(small.hold(0) && AnswerPermit::new(&budget, account()).hold(4 * STEP_BYTES));
    }

    #[test]
    fn bytes_on_their_way_keep_their_permit_until_they_are_sent() {
        let budget = Quota::new(4 * STEP_BYTES, 4 * STEP_BYTES);
        let (mut sender, mut other) =
            (AnswerPermit::new(&budget, account()), AnswerPermit::new(&budget, account()));
        assert!(sender.hold(3 * STEP_BYTES));
        let mut sent = sender.leave_with(vec![7; 2 * STEP_BYTES].into());
        assert!(sender.hold(0) && other.hold(2 * STEP_BYTES) && !other.hold(3 * STEP_BYTES));
        let rest = sent.split_off(9);
        drop((sender, sent));
        assert!(!other.hold(3 * STEP_BYTES));
        drop(rest);
        assert!(other.hold(4 * STEP_BYTES));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_waits_for_memory_and_not_for_ever() {
        let budget = Quota::new(2 * STEP_BYTES, 2 * STEP_BYTES);
        let (mut first, mut second) =
            (AnswerPermit::new(&budget, account()), AnswerPermit::new(&budget, account()));
        assert!(first.wait_for(2 * STEP_BYTES).await);
        let leaves = async {
            sleep(WAIT_FOR_MEMORY / 2).await;
            drop(first);
        };
        let (found, ()) = tokio::join!(second.wait_for(STEP_BYTES), leaves);
        assert!(found && !second.wait_for(3 * STEP_BYTES).await);
        let began = Instant::now();
        assert!(
            !second.wait_for(3 * STEP_BYTES).await && began.elapsed() < WAIT_FOR_MEMORY / 10,
            "it waited enough"
        );
    }
}
