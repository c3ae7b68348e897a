//! Counts of refused calls in memory.

use std::{cmp::Reverse, collections::BTreeMap, ops::RangeInclusive};

use async_trait::async_trait;
use shared::ids::{AccountId, KeyId};

use super::Reference;
use crate::store::{Hour, RefusedCalls, RefusedLine, StoreError, refused::by_reason};
use domain::usage::Day;

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

    async fn refused_keys(
        &self,
        account: AccountId,
        day: Day,
        limit: usize,
    ) -> Result<Vec<(KeyId, u64)>, StoreError> {
        let books = self.books()?;
        let counts = books.accounts.get(&account).into_iter().flat_map(|book| &book.refused);
        let mut keys: BTreeMap<KeyId, u64> = BTreeMap::new();
        for ((key, _, _), count) in counts.filter(|((_, hour, _), _)| hour.day() == day.number()) {
            *keys.entry(*key).or_default() += count;
        }
        let mut keys: Vec<_> = keys.into_iter().collect();
        keys.sort_by_key(|(_, count)| Reverse(*count));
        keys.truncate(limit);
        Ok(keys)
    }
}
