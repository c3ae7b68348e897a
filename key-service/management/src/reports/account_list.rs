//! Lists the installation's accounts for operators: searched by name, page by page, each with its money and spend.

use futures_util::{StreamExt, TryStreamExt, stream};
use shared::{ids::AccountId, money::NanoUsd};

use crate::management::Management;
use domain::usage::{SpendRate, Sums};
use key_service_store::store::{Funds, Hour, StoreError, operators};

/// Number of accounts whose figures are read concurrently.
const READ_AT_ONCE: usize = 16;

/// An account with its money, spend and refused calls.
#[derive(Clone, Debug)]
pub struct AccountRow {
    pub id: AccountId,
    /// Name, money and number of keys.
    pub funds: Funds,
    /// Amounts charged in the last [`DAYS`](crate::spend::DAYS) days.
    pub spent: Sums,
    pub rate: SpendRate,
    /// Number of calls refused today, a day in UTC.
    pub refused: u64,
}

/// A page of the list, newest first.
#[derive(Clone, Debug)]
pub struct AccountPage {
    pub rows: Vec<AccountRow>,
    /// The last account of the page; `None` if no more follow.
    pub next: Option<AccountId>,
    /// Number of accounts on all pages.
    pub total: u64,
}

impl Management {
    /// Lists the accounts after `after` whose names contain every word of `text`. Reads all names, but reads figures
    /// only for the accounts on the page. Pages are read one at a time.
    pub async fn find_accounts(
        &self,
        text: &str,
        after: Option<AccountId>,
        limit: usize,
    ) -> Result<AccountPage, StoreError> {
        let _permit = self.read_permit(operators()).await?;
        let text = text.to_lowercase();
        let is_wanted = |name: &str| {
            let name = name.to_lowercase();
            text.split_whitespace().all(|word| name.contains(word))
        };
        let mut named = self.store.account_names().await?;
        named.retain(|(_, name)| is_wanted(name));
        let total = named.len() as u64;
        let rest = named.iter().rev().map(|(id, _)| *id).filter(|id| after.is_none_or(|after| *id < after));
        let mut ids: Vec<AccountId> = rest.take(limit.saturating_add(1)).collect();
        let has_more = ids.len() > limit;
        ids.truncate(limit);
        let next = ids.last().copied().filter(|_| has_more);
        let rows = stream::iter(ids.into_iter().map(|id| self.account_row(id))).buffered(READ_AT_ONCE);
        // An account whose creation stopped halfway has no figures yet, so it is left out.
        let rows = rows.try_filter_map(|row| std::future::ready(Ok(row))).try_collect().await?;
        Ok(AccountPage { rows, next, total })
    }

    /// Returns an account with its figures; `None` if it does not exist or is the operators' own account.
    pub async fn account_row(&self, id: AccountId) -> Result<Option<AccountRow>, StoreError> {
        if id == operators() {
            return Ok(None);
        }
        let Some(funds) = self.store.funds(id).await? else { return Ok(None) };
        let refused = if funds.has_refused { self.refused_today(id).await? } else { 0 };
        let (rate, spent) = self.rate_and_sum(id).await?;
        Ok(Some(AccountRow { id, funds, spent, rate, refused }))
    }

    async fn refused_today(&self, account: AccountId) -> Result<u64, StoreError> {
        let now = Hour::of(self.clock.now());
        let reasons = self.store.refused(account, now.midnight()..=now, None).await?;
        Ok(reasons.into_iter().fold(0, |sum, (_, count)| sum.saturating_add(count)))
    }
}

impl AccountRow {
    /// Returns how many whole days the credit will last; `None` if nothing was spent.
    pub fn days_left(&self) -> Option<i64> {
        self.rate.days_left(self.funds.credit)
    }

    /// Returns the credit that is not held.
    pub fn available(&self) -> NanoUsd {
        self.funds.credit.left_after(self.funds.held)
    }
}

#[cfg(test)]
mod tests {
    use domain::event::Actor;

    use super::*;
    use crate::testing::Office;

    #[tokio::test]
    async fn accounts_are_found_by_words_of_their_names_page_by_page_and_the_operators_are_not_among_them() {
        let office = Office::open();
        let management = &office.management;
        management.create_operator("ann", Actor::System).await.unwrap();
        for n in 0..7 {
            let name = format!("{} customer {n}", if n % 2 == 0 { "Even" } else { "Odd" });
            management.create_account(&name, NanoUsd::from_usd(n), Actor::System).await.unwrap();
        }
        let list = async |text: &str, limit| {
            let (mut names, mut after, mut pages) = (Vec::new(), None, 0);
            loop {
                let page = management.find_accounts(text, after, limit).await.unwrap();
                names.extend(page.rows.into_iter().map(|row| row.funds.name));
                pages += 1;
                match page.next {
                    Some(next) => after = Some(next),
                    None => return (names, page.total, pages),
                }
            }
        };
        let (names, total, pages) = list("", 3).await;
        assert_eq!((names.len(), total, pages), (7, 7, 3));
        assert_eq!((names[0].as_str(), names[6].as_str()), ("Even customer 6", "Even customer 0"));
        assert_eq!(list("CUSTOMER odd", 9).await.0, ["Odd customer 5", "Odd customer 3", "Odd customer 1"]);
        assert_eq!(list("nobody", 9).await, (Vec::new(), 0, 1));
        assert!(management.account_row(operators()).await.unwrap().is_none());
    }
}
