//! Housekeeping: drops those sets of an account that contain only old records.
//!
//! No list names the sets of an account. Instead, a record has the number of a part for each kind of set: the sets of
//! all lower parts have been dropped. At first, this is the part that contains the account's creation.

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, time::Duration};

use domain::{ledger::REMEMBERED, usage::Day};
use records::{Answer, Commit, Committed, Failure, Guard, Order, Question, Record, Revision, Set, Write};
use shared::{clock::random_bytes, ids::AccountId, time::Timestamp};
use tokio::time::Instant;

pub use crate::kept::dropped::begin;
use crate::{
    kept::Retention,
    lanes::lane::{Lane, Lanes},
    names,
    stored::{HeldPart, House},
    view::{FORM, reading},
};

/// Time between two rounds of housekeeping for an account. In this time, one more part of the account's generations
/// becomes old.
pub(crate) const EVERY: Duration = Duration::from_mins(10);
/// How long a capture's bill is kept after its part of the generations has ended. A capture that comes later charges
/// nothing: the record of dropped sets shows that its generation may already have been billed.
const SETTLED_KEPT: Duration = Duration::from_secs(2 * REMEMBERED.as_secs());
/// Number of extra days for which bills of expiries are kept, because a hold may expire on a later day than the day on
/// which it was opened.
const LATE_DAYS: i64 = 2;
/// Maximum number of sets that a commit drops. Redis numbers a commit's sets with one byte.
const MOST_DROPS: usize = 100;
/// Maximum number of parts of the generations that are kept because of open holds. If there are more, this and later
/// parts are not dropped until there is room.
const MOST_HELD_PARTS: usize = 100;
/// Maximum number of open holds to read. As long as an account has more open holds, none of its generations are
/// dropped.
const MOST_HOLDS: usize = 100_000;
/// Maximum number of attempts at a commit. An attempt fails if the account is spending at the same time.
const MOST_ATTEMPTS: u32 = 3;
/// If our clock differs from the backend's by more than this, nothing is dropped: records that look old only because a
/// clock is wrong may still be needed.
const MOST_SKEW_MILLIS: u64 = 60_000;

impl Lanes {
    /// Drops sets of the account that contain only old records.
    pub async fn keep_house(&self, account: AccountId) -> Result<(), Failure> {
        let lane = self.lane(account);
        let _view = lane.view.lock().await;
        self.drop_old(&lane).await
    }

    /// Does the account's housekeeping if it is due. Only the caller that leads the account's lane may call this. After
    /// a failure, the next round tries again.
    pub(crate) async fn keep_house_if_due(&self, lane: &Lane) {
        let present = Instant::now();
        if *lane.house_due.lock() > present {
            return;
        }
        *lane.house_due.lock() = present + EVERY;
        drop(self.drop_old(lane).await);
    }

    async fn drop_old(&self, lane: &Lane) -> Result<(), Failure> {
        let Some(now) = self.steady_time() else { return Ok(()) };
        let skew = self.records.clock_skew().await?.unwrap_or_default();
        if skew.unsigned_abs() > MOST_SKEW_MILLIS {
            return Ok(());
        }
        for _ in 0..MOST_ATTEMPTS {
            let Some(commit) = self.decide_drops(lane, now).await? else { return Ok(()) };
            match self.records.commit(&lane.space, commit).await? {
                Committed::Written => return Ok(()),
                Committed::Conflict(_) => {}
            }
        }
        Ok(())
    }

    /// Builds the commit that drops old sets; `None` if there is nothing to drop. The commit has a guard on the
    /// account, so that no hold is opened in the meantime.
    async fn decide_drops(&self, lane: &Lane, now: Timestamp) -> Result<Option<Commit>, Failure> {
        let (index, from, order, limit) = (names::DUE, Vec::new(), Order::Ascending, MOST_HOLDS + 1);
        let due = Question::Entries { index, from, to: None, order, limit };
        let questions = vec![Question::Records(vec![names::account().into(), names::house().into()]), due];
        let answers = self.records.read(&lane.space, questions).await?;
        let [Answer::Records(records), Answer::Entries(due)] = &answers[..] else {
            return Err(Failure::Damaged("the store answered a different question".into()));
        };
        let [Some(account), house] = &records[..] else { return Ok(None) };
        let before = match house {
            None => None,
            Some(house) if house.form() > FORM => return Ok(None),
            Some(house) => {
                let read = reading::value::<House>(house);
                Some(read.map_err(|error| Failure::Damaged(error.to_string()))?)
            }
        };
        let open = (due.len() <= MOST_HOLDS).then(|| parts(due));
        let mut drops = Drops::new(before.clone().unwrap_or_else(|| begin(lane.account)));
        if let Some(open) = open {
            drops.generations(&open, now);
        }
        drops.days(self.kept, Day::of(now));
        let Drops { house: after, sets } = drops;
        if sets.is_empty() && before.is_none_or(|before| before == after) {
            return Ok(None);
        }
        let seen = |record: &Record| Some(record.revision());
        let guards = vec![
            Guard { name: names::account().into(), seen: seen(account) },
            Guard { name: names::house().into(), seen: house.as_ref().and_then(seen) },
        ];
        let revision = Revision(random_bytes(&*self.clock));
        let put = Write::Put(names::house().into(), Record::of(revision, FORM, &after));
        let writes = std::iter::once(put).chain(sets.into_iter().map(Write::Drop)).collect();
        Ok(Some(Commit { guards, writes }))
    }
}

/// The sets to drop, and the record of dropped sets as it will be after that.
struct Drops {
    house: House,
    sets: Vec<Set>,
}

impl Drops {
    const fn new(house: House) -> Self {
        Self { house, sets: Vec::new() }
    }

    /// Drops old parts of the generations. The parts in `open` have open holds. Such a part stays until its last hold
    /// was settled so long ago that no capture will be repeated.
    fn generations(&mut self, open: &BTreeSet<u32>, now: Timestamp) {
        let Self { house, sets } = self;
        house.held.retain_mut(|held| {
            if open.contains(&held.part) {
                held.held_at = now;
                return true;
            }
            let is_kept = held.held_at.plus(REMEMBERED) > now;
            if !is_kept {
                sets.push(Set { table: names::GENERATIONS, part: held.part });
            }
            is_kept
        });
        let old = names::part(now.minus(SETTLED_KEPT), names::TEN_MINUTES);
        while house.generations < old && sets.len() < MOST_DROPS {
            let part = house.generations;
            if !open.contains(&part) {
                sets.push(Set { table: names::GENERATIONS, part });
            } else if house.held.len() < MOST_HELD_PARTS {
                house.held.push(HeldPart { part, held_at: now });
            } else {
                return;
            }
            house.generations += 1;
        }
    }

    /// Drops old bills of expiries, and old sums.
    fn days(&mut self, kept: Retention, today: Day) {
        let Self { house, sets } = self;
        let expired_days = i64::try_from(kept.expired.as_secs().div_ceil(86_400)).unwrap_or(i64::MAX);
        let old = names::day_part(today.plus(expired_days.saturating_add(LATE_DAYS).saturating_neg()));
        while house.expired < old && sets.len() < MOST_DROPS {
            sets.push(Set { table: names::EXPIRED, part: house.expired });
            house.expired += 1;
        }
        let Some(days) = kept.usage_days else { return };
        let old = names::day_part(today.plus(-i64::from(days)));
        while house.sums < old && sets.len() + names::SETS_OF_DAYS.len() <= MOST_DROPS {
            sets.extend(names::SETS_OF_DAYS.map(|table| Set { table, part: house.sums }));
            house.sums += 1;
        }
    }
}

/// Finds the parts of the generations that have open holds.
fn parts(due: &[Vec<u8>]) -> BTreeSet<u32> {
    let open = due.iter().filter_map(|entry| names::read_due(entry));
    open.map(|(_, generation)| names::part(generation.created_at(), names::TEN_MINUTES)).collect()
}
