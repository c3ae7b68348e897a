//! Spend of the last days, added up by day and model, and by key.
//!
//! An account with many keys has a million counters a month. Those of days that are over do not change any more: they
//! are added up once a day and kept in memory.

use std::{
    collections::{BTreeMap, HashMap},
    ops::RangeInclusive,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use shared::{
    ids::{AccountId, KeyId},
    money::NanoUsd,
};
use tokio::{sync::OnceCell, time::timeout};

use super::Management;
use crate::{
    domain::usage::Day,
    store::{Unavailable, UsageLine},
};

/// Days that are added up.
pub const DAYS: i64 = 30;

/// Time after midnight in which the day before may still change: clocks of key-services differ by seconds at most.
const LATE: Duration = Duration::from_mins(10);

/// Accounts whose sums are kept. Each takes some 30 bytes a key.
const ACCOUNTS_KEPT: usize = 32;

/// Longest wait for the first sums of a day; they are added up all the same.
const PATIENCE: Duration = Duration::from_secs(3);

/// Sums of an account's charges.
#[derive(Clone, Debug, Default)]
pub struct Spend {
    /// By day and model.
    pub by_day: BTreeMap<Day, BTreeMap<String, NanoUsd>>,
    /// By key.
    pub by_key: HashMap<KeyId, NanoUsd>,
}

/// The sums of days that are over, and the last of these days.
type PastSpend = Arc<OnceCell<Arc<Spend>>>;

/// The sums that are kept.
#[derive(Debug, Default)]
pub(super) struct SpendCache(Mutex<HashMap<AccountId, (Day, PastSpend)>>);

impl SpendCache {
    /// The sums up to this day, which may have to be added up yet.
    fn past(&self, account: AccountId, until: Day) -> PastSpend {
        let mut kept = self.0.lock();
        if let Some((day, past)) = kept.get(&account)
            && *day == until
        {
            return past.clone();
        }
        if kept.len() >= ACCOUNTS_KEPT {
            kept.clear();
        }
        let past = PastSpend::default();
        kept.insert(account, (until, past.clone()));
        past
    }
}

impl Spend {
    fn add(&mut self, lines: &[UsageLine]) {
        for UsageLine { day, key, model, counts } in lines {
            plus(self.by_day.entry(*day).or_default().entry(model.clone()).or_default(), counts.charged);
            plus(self.by_key.entry(*key).or_default(), counts.charged);
        }
    }

    /// The sum of the days behind this one.
    pub fn since(&self, day: Day) -> NanoUsd {
        let mut sum = NanoUsd::ZERO;
        for models in self.by_day.iter().filter(|(of, _)| **of > day).map(|(_, models)| models) {
            for charged in models.values() {
                plus(&mut sum, *charged);
            }
        }
        sum
    }
}

/// Adds up to the largest amount there is.
fn plus(sum: &mut NanoUsd, amount: NanoUsd) {
    *sum = NanoUsd::from_nanos(sum.nanos().saturating_add(amount.nanos()));
}

impl Management {
    /// The spend of the account in the last [`DAYS`]. `None` while it is still being added up.
    pub async fn spend(self: &Arc<Self>, account: AccountId) -> Result<Option<Spend>, Unavailable> {
        let now = self.clock.now();
        let (today, over) = (Day::of(now), Day::from_number(Day::of(now.minus(LATE)).number() - 1));
        let past = self.spend.past(account, over);
        let (management, days) = (self.clone(), Day::from_number(today.number() - DAYS + 1)..=over);
        // In a task of its own: a member who does not wait does not end it.
        let counting =
            tokio::spawn(
                async move { past.get_or_try_init(|| management.add_up(account, days)).await.cloned() },
            );
        let Ok(counted) = timeout(PATIENCE, counting).await else { return Ok(None) };
        let mut spend = Spend::clone(&*counted.map_err(|e| Unavailable(e.to_string()))??);
        let rest = Day::from_number(over.number() + 1)..=today;
        spend.add(&self.store.usage(account, rest, None).await?);
        Ok(Some(spend))
    }

    /// Reads a day at a time: a month at once would take hundreds of megabytes.
    async fn add_up(&self, account: AccountId, days: RangeInclusive<Day>) -> Result<Arc<Spend>, Unavailable> {
        let mut spend = Spend::default();
        for number in days.start().number()..=days.end().number() {
            let day = Day::from_number(number);
            spend.add(&self.store.usage(account, day..=day, None).await?);
        }
        Ok(Arc::new(spend))
    }

    /// The spend of one key in the last [`DAYS`].
    pub async fn spend_of(&self, account: AccountId, key: KeyId) -> Result<Spend, Unavailable> {
        let today = self.today();
        let days = Day::from_number(today.number() - DAYS + 1)..=today;
        let mut spend = Spend::default();
        spend.add(&self.store.usage(account, days, Some(key)).await?);
        Ok(spend)
    }
}
