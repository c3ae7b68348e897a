//! Remembers what accounts spent in the last days. The overview page calculates it, and every other page uses it to
//! show how long the credit lasts, without further reads.

use std::collections::HashMap;

use parking_lot::Mutex;
use shared::{ids::AccountId, money::NanoUsd};

use domain::usage::Day;

/// Most remembered accounts, in less than a megabyte.
const MAX_ACCOUNTS: usize = 10_000;

/// Spend of accounts, each with the day it was calculated.
#[derive(Default)]
pub(crate) struct RecentSpend(Mutex<HashMap<AccountId, (Day, NanoUsd)>>);

impl RecentSpend {
    /// Remembers a spend. If there are too many accounts, all others are forgotten until they are calculated again.
    pub(crate) fn remember(&self, account: AccountId, today: Day, spent: NanoUsd) {
        let mut accounts = self.0.lock();
        if accounts.len() >= MAX_ACCOUNTS && !accounts.contains_key(&account) {
            accounts.clear();
        }
        accounts.insert(account, (today, spent));
    }

    /// Returns the spend of an account, if it was calculated today or yesterday.
    pub(crate) fn of(&self, account: AccountId, today: Day) -> Option<NanoUsd> {
        let (day, spent) = self.0.lock().get(&account).copied()?;
        (day.plus(1) >= today).then_some(spent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::ledger::histories::{START, account};

    #[test]
    fn a_spend_is_remembered_until_the_end_of_the_next_day() {
        let (recent, today) = (RecentSpend::default(), Day::of(START));
        recent.remember(account(1), today, NanoUsd::from_usd(3));
        for (days, remembered) in [(0, true), (1, true), (2, false)] {
            assert_eq!(recent.of(account(1), today.plus(days)).is_some(), remembered, "{days}");
        }
        assert_eq!(recent.of(account(2), today), None);
        recent.remember(account(1), today, NanoUsd::from_usd(4));
        assert_eq!(recent.of(account(1), today), Some(NanoUsd::from_usd(4)));
    }
}
