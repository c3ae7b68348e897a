//! Turns of an account at reads for pages and listings: one read at a time, so that the store serves others between.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use shared::ids::AccountId;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::store::StoreError;

/// Longest wait for the account's turn: a page reads for some 20 ms, so that a hundred pages get through.
const PATIENCE: Duration = Duration::from_secs(5);

/// Number of accounts above which idle accounts are forgotten; some 100 bytes each.
const KEPT_ACCOUNTS: usize = 1_024;

/// The turn of each account that reads.
#[derive(Debug, Default)]
pub(super) struct ReadingTurns(Mutex<HashMap<AccountId, Arc<Semaphore>>>);

impl ReadingTurns {
    /// Waits for the account's turn, which lasts until the permit is dropped.
    pub(super) async fn take(&self, account: AccountId) -> Result<OwnedSemaphorePermit, StoreError> {
        let late = || StoreError::Busy("the account reads too many pages at once");
        let turn = timeout(PATIENCE, self.of(account).acquire_owned()).await.map_err(|_| late())?;
        turn.map_err(|_| late())
    }

    fn of(&self, account: AccountId) -> Arc<Semaphore> {
        let mut turns = self.0.lock();
        if turns.len() >= KEPT_ACCOUNTS {
            // Each permit, and each waiting caller, has its own share of the semaphore.
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        turns.entry(account).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::poll;

    use super::*;
    use domain::ledger::histories::account;

    #[tokio::test(start_paused = true)]
    async fn an_account_reads_one_page_at_a_time_and_keeps_no_other_waiting() {
        let turns = ReadingTurns::default();
        let first = turns.take(account(1)).await.unwrap();
        let mut second = pin!(turns.take(account(1)));
        assert!(poll!(&mut second).is_pending());
        drop(turns.take(account(2)).await.unwrap());
        assert!(poll!(&mut second).is_pending());
        drop(first);
        let second = second.await.unwrap();
        turns.take(account(1)).await.unwrap_err();
        drop(second);
        drop(turns.take(account(1)).await.unwrap());
    }

    #[tokio::test]
    async fn accounts_that_read_nothing_are_forgotten() {
        let turns = ReadingTurns::default();
        let reading = turns.take(account(0)).await.unwrap();
        for n in 0..=KEPT_ACCOUNTS as u64 {
            let id = AccountId::new(shared::time::Timestamp::from_millis(n.cast_signed()), [1; 10]);
            drop(turns.take(id).await.unwrap());
        }
        assert!(turns.0.lock().len() <= KEPT_ACCOUNTS);
        assert!(turns.0.lock().contains_key(&account(0)), "it still reads");
        drop(reading);
    }
}
