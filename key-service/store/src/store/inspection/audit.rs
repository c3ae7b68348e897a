//! The audit of the books, while spending continues.
//!
//! The figures may be of different moments, since each balance names the last entry of the journal that changed it.
//! Balances are read page by page, each as it is, and then the journal in its order; each balance is compared after its
//! last entry. The held money is compared with the index of open holds, which is read together with a page of balances.
//! Holds, and the numbers of keys and groups, are compared with their indexes at one moment.

mod balances;
mod bounds;
mod counts;
mod expiries;
mod holds;
mod listings;
mod numbers;
mod sums;
#[cfg(test)]
mod tests;

use domain::{
    audit::{Audit, AuditedEntry, Auditor, BudgetOwner, Figure, Quantity},
    ledger::Account,
    usage::Day,
};
use key_service_ledger::{StoreError, codec, messages, names};
use records::{Answer, Order, Question, Space};
use shared::{ids::AccountId, money::NanoUsd, time::Timestamp};

use self::{
    balances::{Balanced, Holds},
    listings::PayerListings,
    numbers::LastNumbers,
    sums::{DaySums, RecordedSum},
};
use crate::store::{
    base::{Store, message, no_answer},
    books::{AT_ONCE, deposit_id, journal_entry},
    inspection::audit::bounds::{ALL, LATE},
};

/// Attempts before an audit gives up. Entries are normally read faster than they are dropped.
const AUDIT_ATTEMPTS: u32 = 10;
/// Rounds in which keys and groups that were made during the audit are looked up.
const LATE_ROUNDS: u32 = 10;
/// Result of reading the books once.
enum ReadAttempt {
    Done(Box<Option<Audit>>),
    /// Entries were dropped before they were read, or keys made faster than they were looked up.
    Overtaken,
}

/// The account as it was at one moment.
struct AccountMoment {
    money: Account,
    /// Number of the last entry.
    entries: u64,
    /// Sum of the open holds.
    held: NanoUsd,
    deposits: Vec<NanoUsd>,
}

/// The journal as far as it was read.
struct JournalRead {
    auditor: Auditor,
    /// Number of the next entry.
    next: u64,
    /// Number of the last entry that is read.
    until: u64,
    numbers: LastNumbers,
    sums: DaySums,
    listings: PayerListings,
}

impl Store {
    /// Audits the account's books while spending continues. `None` if the account does not exist. It reads the whole
    /// journal in bounded memory.
    pub async fn audit(&self, account: AccountId) -> Result<Option<Audit>, StoreError> {
        for _ in 0..AUDIT_ATTEMPTS {
            match self.go_through(account).await? {
                ReadAttempt::Done(audit) => return Ok(*audit),
                ReadAttempt::Overtaken => {}
            }
        }
        Err(StoreError::Busy("the journal drops entries faster than they can be read"))
    }

    /// Goes through the books once: the account, all balances, and then the journal.
    async fn go_through(&self, account: AccountId) -> Result<ReadAttempt, StoreError> {
        let space = names::space(account);
        let Some(moment) = self.account_moment(&space).await? else {
            return Ok(ReadAttempt::Done(Box::new(None)));
        };
        let mut balances = self.all_balances(&space).await?;
        let mut reading = self.begin_reading(&space, moment.entries).await?;
        // Balances count entries that the credit has not paid, and nothing shows any more how much these are.
        if reading.next > moment.entries + 1 {
            return Ok(ReadAttempt::Overtaken);
        }
        for balance in &balances {
            balance.tell_bounds(&mut reading.auditor);
        }
        self.prove_holds(account, &mut reading.auditor).await?;
        self.prove_counts(&space, &mut reading.auditor).await?;
        for _ in 0..LATE_ROUNDS {
            if !self.read_on(account, &mut reading, balances).await? {
                return Ok(ReadAttempt::Overtaken);
            }
            // A key or group that has entries but was not listed may have been made meanwhile.
            let unknown: Vec<BudgetOwner> = reading.auditor.unknown().collect();
            balances = Vec::new();
            for owners in unknown.chunks(AT_ONCE) {
                balances.extend(self.balances_of(&space, owners).await?);
            }
            if balances.is_empty() {
                let JournalRead { mut auditor, sums, .. } = reading;
                sums.finish(&mut auditor);
                let AccountMoment { money, held, deposits, .. } = moment;
                let audit = auditor.account(money, held, deposits.into_iter());
                return Ok(ReadAttempt::Done(Box::new(Some(audit))));
            }
        }
        Ok(ReadAttempt::Overtaken)
    }

    async fn account_moment(&self, space: &Space) -> Result<Option<AccountMoment>, StoreError> {
        let all = |index| Question::Entries {
            index,
            from: Vec::new(),
            to: None,
            order: Order::Ascending,
            limit: ALL,
        };
        let questions =
            vec![Question::Records(vec![names::account()]), all(names::DUE), all(names::DEPOSITED)];
        let answers: [Answer; 3] = self.ask(space, questions).await?.try_into().map_err(|_| no_answer())?;
        let [Answer::Records(account), Answer::Entries(due), Answer::Entries(deposited)] = answers else {
            return Err(no_answer());
        };
        let Some(account) = account.into_iter().next().flatten() else { return Ok(None) };
        let account = codec::read_account(&message::<messages::Account>(&account)?);
        let ids = deposited.iter().map(|entry| deposit_id(entry)).collect::<Result<Vec<_>, _>>()?;
        let mut deposits = Vec::with_capacity(ids.len());
        for ids in ids.chunks(AT_ONCE) {
            let found = self.deposits_of(space, ids).await?;
            deposits.extend(found.into_iter().map(|deposit| deposit.deposited.amount));
        }
        let held = Holds::read(&due).all();
        Ok(Some(AccountMoment { money: account.money, entries: account.entries, held, deposits }))
    }

    /// Begins to read at the first entry that is still there.
    async fn begin_reading(&self, space: &Space, entries: u64) -> Result<JournalRead, StoreError> {
        let first = self.values(space, names::JOURNAL, 0..=u64::MAX, Order::Ascending, 1).await?;
        let first = first.first().map(|(number, value)| journal_entry(*number, value)).transpose()?;
        let number = first.as_ref().map_or(1, |first| first.number);
        let begins_at =
            first.as_ref().filter(|first| first.number > 1).map(|first| first.entry.settlement.at);
        let whole_from = first.filter(|first| first.number > 1).map(|first| {
            // Earlier entries of the day may have been dropped.
            Day::of(first.entry.settlement.at.plus(LATE)).plus(1)
        });
        let whole_from = whole_from.unwrap_or(Day::of(Timestamp::from_millis(0)));
        let mut auditor = Auditor::new(number == 1).paid(entries);
        auditor.begins(number);
        let sums = DaySums::new(whole_from, entries, begins_at);
        let (numbers, listings) = (LastNumbers::new(number == 1), PayerListings::default());
        Ok(JournalRead { auditor, next: number, until: entries, numbers, sums, listings })
    }

    /// Continues to read the journal up to the last entry that the account or any balance counts, and adds each balance
    /// after its last entry. Returns `false` if entries were dropped before they were read.
    async fn read_on(
        &self,
        account: AccountId,
        reading: &mut JournalRead,
        mut balances: Vec<Balanced>,
    ) -> Result<bool, StoreError> {
        let space = names::space(account);
        balances.sort_by_key(|balance| std::cmp::Reverse(balance.last_entry));
        reading.until = reading.until.max(balances.first().map_or(0, |balance| balance.last_entry));
        while reading.next <= reading.until {
            let last = reading.until.min(reading.next + AT_ONCE as u64 - 1);
            let range = reading.next..=last;
            let found = self.values(&space, names::JOURNAL, range, Order::Ascending, AT_ONCE).await?;
            if found.is_empty() {
                if self.first_number(&space).await? > reading.next {
                    return Ok(false);
                }
                reading.next = last + 1;
            }
            for (number, value) in found {
                if number > reading.next && self.first_number(&space).await? > reading.next {
                    return Ok(false);
                }
                reading.add_balances(&mut balances, number);
                let entry = journal_entry(number, &value)?;
                reading.numbers.add(&mut reading.auditor, &entry);
                let (generation, entry) = (entry.generation, entry.entry);
                let day = Day::of(entry.settlement.at);
                if reading.sums.needs(day) {
                    reading.until = reading.until.max(self.load_sums(account, day, reading).await?);
                }
                reading.sums.add(number, generation, &entry);
                reading.auditor.bill(generation, &entry);
                reading.auditor.entry(AuditedEntry::of(number, &entry));
                reading.next = number + 1;
            }
        }
        reading.add_balances(&mut balances, u64::MAX);
        Ok(true)
    }

    /// Returns the number of the first entry that is still there; 1 for an empty journal, since never all entries are
    /// dropped.
    async fn first_number(&self, space: &Space) -> Result<u64, StoreError> {
        let first = self.values(space, names::JOURNAL, 0..=u64::MAX, Order::Ascending, 1).await?;
        Ok(first.first().map_or(1, |(number, _)| *number))
    }

    /// Loads the sums of a day. Returns the number of the last entry that they count.
    async fn load_sums(
        &self,
        account: AccountId,
        day: Day,
        reading: &mut JournalRead,
    ) -> Result<u64, StoreError> {
        let (reader, mut found) = (self.sums(account), Vec::new());
        for table in names::SETS_OF_DAYS {
            let mut add = |_: Day, name: &[u8], record: &_| {
                found.push((name.to_vec(), RecordedSum::read(table, record)?));
                Ok(())
            };
            reader.each(table, day..=day, &mut add).await?;
        }
        let unlisted = reading.listings.unlisted(&reader, day, &found).await?;
        for (key, model) in unlisted {
            let figure = Figure::Listed(key, day, model);
            reading.auditor.quantity(figure, Quantity::Count(0), Quantity::Count(1));
        }
        let house = self.get::<messages::House>(&names::space(account), names::house()).await?;
        let is_dropped = house.is_some_and(|house| house.sums > names::day_part(day));
        Ok(reading.sums.load(&mut reading.auditor, day, (!is_dropped).then_some(found)))
    }
}

impl JournalRead {
    /// Adds the balances whose last entry comes before the entry of this number.
    fn add_balances(&mut self, balances: &mut Vec<Balanced>, number: u64) {
        while let Some(balance) = balances.pop_if(|balance| balance.last_entry < number) {
            balance.add_to(&mut self.auditor, &self.numbers);
        }
    }
}
