//! Counts of refused calls in memory.

use std::ops::RangeInclusive;

use async_trait::async_trait;
use shared::ids::{AccountId, KeyId};

use super::Reference;
use crate::store::{Hour, RefusedCalls, RefusedLine, StoreError, refused::by_reason};

#[async_trait]
impl RefusedCalls for Reference {
    async fn add_refused(&self, account: AccountId, lines: Vec<RefusedLine>) -> Result<(), StoreError> {
        if let Some(book) = self.books()?.accounts.get_mut(&account) {
            for RefusedLine { key, hour, reason, count } in lines {
                *book.refused.entry((key, hour, reason)).or_default() += count;
            }
        }
        Ok(())
    }

    async fn refused(
        &self,
        account: AccountId,
        hours: RangeInclusive<Hour>,
        key: Option<KeyId>,
    ) -> Result<Vec<(String, u64)>, StoreError> {
        let books = self.books()?;
        let counts = books.accounts.get(&account).into_iter().flat_map(|book| &book.refused);
        let counts =
            counts.filter(|((of, hour, _), _)| hours.contains(hour) && key.is_none_or(|key| key == *of));
        Ok(by_reason(counts.map(|((_, _, reason), count)| ((*reason).to_owned(), *count))))
    }
}
