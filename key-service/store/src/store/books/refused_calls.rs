//! The latest refused calls of an account. Only their counts are kept longer.

use std::cmp::Reverse;

use domain::refused::RefusedCall;
use key_service_ledger::{StoreError, names::RecordName, stored::RefusedCalls};
use records::{Order, Write};
use shared::{ids::AccountId, stored};

use crate::store::{base::Store, layout};

/// Number of refused calls that an account keeps: a few hundred kilobytes.
pub const REFUSED_CALLS_KEPT: usize = 1_000;
/// Maximum number of values that one commit appends, far below the limit on a commit's words.
const APPENDED_AT_ONCE: usize = 200;

impl Store {
    /// Adds refused calls of the account, and drops all but the latest [`REFUSED_CALLS_KEPT`]. The commit needs no
    /// guards, since spending does not read these calls.
    pub async fn add_refused_calls(
        &self,
        account: AccountId,
        calls: &[RefusedCall],
    ) -> Result<(), StoreError> {
        let values: Vec<_> = calls.iter().map(stored::write).collect();
        for values in values.chunks(APPENDED_AT_ONCE) {
            self.note(&layout::space(account), |view| {
                let mut kept: RefusedCalls = view.get(&numbers())?.unwrap_or_default();
                let (log, first) = (layout::REFUSED_CALLS, kept.last + 1);
                kept.last += values.len() as u64;
                view.put(&numbers(), kept);
                let (values, kept) = (values.to_vec(), REFUSED_CALLS_KEPT as u64);
                view.write(Write::Append { log, first, values, kept });
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Lists the account's latest refused calls, newest first.
    pub async fn refused_calls(&self, account: AccountId) -> Result<Vec<RefusedCall>, StoreError> {
        let (space, all, order) = (layout::space(account), 0..=u64::MAX, Order::Descending);
        let values =
            self.read().values(&space, layout::REFUSED_CALLS, all, order, REFUSED_CALLS_KEPT).await?;
        let read = |(number, value): (u64, Vec<u8>)| {
            let call = stored::read::<RefusedCall>(&value);
            call.map_err(|_| StoreError::Damaged(format!("refused call {number}")))
        };
        let mut calls: Vec<_> = values.into_iter().map(read).collect::<Result<_, _>>()?;
        // Each key-service adds calls in batches, some time after the calls were refused.
        calls.sort_unstable_by_key(|call| Reverse(call.id));
        Ok(calls)
    }
}

/// Names the record with the last number.
fn numbers() -> RecordName<RefusedCalls> {
    layout::name(layout::HOUSE, *b"c")
}
