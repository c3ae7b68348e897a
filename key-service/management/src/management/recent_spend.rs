//! Remembers the spend rates of accounts. The overview page calculates them, and every other page uses them to show how
//! long the credit lasts, without further reads.

use std::collections::HashMap;

use parking_lot::Mutex;
use shared::ids::AccountId;

use domain::usage::{Day, SpendRate};

/// Maximum number of remembered accounts. They take less than a megabyte.
const MAX_ACCOUNTS: usize = 10_000;

/// Rates of accounts, each with the day on which it was calculated.
#[derive(Default)]
pub(crate) struct RecentSpend(Mutex<HashMap<AccountId, (Day, SpendRate)>>);

impl RecentSpend {
    /// Remembers a rate. If there are too many accounts, all other rates are forgotten until they are calculated again.
    pub(crate) fn remember(&self, account: AccountId, today: Day, rate: SpendRate) {
        let mut accounts = self.0.lock();
        if accounts.len() >= MAX_ACCOUNTS && !accounts.contains_key(&account) {
            accounts.clear();
        }
        accounts.insert(account, (today, rate));
    }

    /// Returns the rate of an account, if it was calculated today or yesterday.
    pub(crate) fn of(&self, account: AccountId, today: Day) -> Option<SpendRate> {
        let (day, rate) = self.0.lock().get(&account).copied()?;
        (day.plus(1) >= today).then_some(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::ledger::histories::{START, account};
    use shared::money::NanoUsd;

    #[test]
    fn a_rate_is_remembered_until_the_end_of_the_next_day() {
        let (recent, today) = (RecentSpend::default(), Day::of(START));
        let rate = |usd| SpendRate::of(&[NanoUsd::from_usd(usd)], 1);
        recent.remember(account(1), today, rate(3));
        for (days, remembered) in [(0, true), (1, true), (2, false)] {
            assert_eq!(recent.of(account(1), today.plus(days)).is_some(), remembered, "{days}");
        }
        assert_eq!(recent.of(account(2), today), None);
        recent.remember(account(1), today, rate(4));
        assert_eq!(recent.of(account(1), today), Some(rate(4)));
    }
}
