//! Audits an account's books while spending continues.
//!
//! Figures may be read at different moments, because each balance names the last journal entry that it includes. The
//! audit reads the balances page by page, and then the journal in order. It compares each balance when it reaches the
//! balance's last entry. It compares held money with the index of open holds, which it reads together with each page of
//! balances. It compares holds, and the counts of keys and groups, with their indexes as they were at one moment.

mod account;
mod balances;
mod bounds;
mod counts;
mod events;
mod expiries;
mod holds;
mod indexes;
mod listings;
mod numbers;
mod reading;
mod remembered;
mod sums;
mod wallets;

use std::time::Duration;

use domain::{
    audit::{Audit, AuditedEntry, Auditor, BudgetOwner, Figure, Quantity, Stored},
    ledger::{Account, Ending},
    usage::Day,
};
use key_service_ledger::{
    StoreError,
    journal::JournalEntry,
    names,
    reading::{no_answer, value},
    stored::{AccountRecord, House},
    sums::SumsReader,
};
use records::{Answer, Order, Question, Record, Space};
use shared::{ids::AccountId, money::NanoUsd, time::Timestamp};

use self::{
    account::AccountMoment,
    balances::Balanced,
    bounds::{AT_ONCE, LATE},
    indexes::ExpectedEntries,
    listings::PayerListings,
    numbers::LastNumbers,
    reading::journal_entry,
    remembered::RememberedBills,
    sums::{DaySums, RecordedSum},
};
pub use reading::Books;

/// Minimum number of journal entries that a store keeps, even if its configured maximum is lower.
const FEWEST_KEPT: u64 = 1_000;
/// Maximum time by which an account's recorded last expiry may be earlier than the journal's, because clocks differ.
const EXPIRY_LATE: Duration = Duration::from_hours(24);
/// How many times an audit is attempted before it fails. An attempt fails if the store drops entries before the audit
/// reads them, which is rare.
pub const AUDIT_ATTEMPTS: u32 = 10;
/// How many times to look up keys and groups that appear in entries but were created during the audit.
const LATE_ROUNDS: u32 = 10;
enum ReadAttempt {
    Done(Box<Option<Audit>>),
    /// Entries were dropped before they could be read, or keys were created faster than they could be looked up.
    Overtaken,
}

/// The state of an audit that is reading the journal.
struct JournalRead {
    auditor: Auditor,
    /// Number of the next entry.
    next: u64,
    /// Number of the last entry to read.
    until: u64,
    /// Number of the last entry that the account's record includes.
    paid: u64,
    numbers: LastNumbers,
    sums: DaySums,
    listings: PayerListings,
    bills: RememberedBills,
    /// Time of the last expiry among the entries that the account's record includes.
    last_expiry: Option<Timestamp>,
}

impl Books<'_> {
    /// Audits the account's books while spending continues. Reads the whole journal in bounded memory. Returns `None`
    /// if the account does not exist.
    pub async fn audit(&self, account: AccountId) -> Result<Option<Audit>, StoreError> {
        for _ in 0..AUDIT_ATTEMPTS {
            match self.go_through(account).await? {
                ReadAttempt::Done(audit) => return Ok(*audit),
                ReadAttempt::Overtaken => {}
            }
        }
        Err(StoreError::Busy("the journal drops entries faster than they can be read"))
    }

    /// Reads the books once: the account, all balances, and then the journal.
    async fn go_through(&self, account: AccountId) -> Result<ReadAttempt, StoreError> {
        let space = names::space(account);
        let Some(moment) = self.account_moment(&space).await? else {
            return Ok(ReadAttempt::Done(Box::new(None)));
        };
        let Some(record) = moment.record else {
            // Without the account's record, no figure can be compared.
            let mut auditor = Auditor::new(true);
            auditor.missing(Stored::AccountMoney);
            let audit = auditor.account(Account::default(), NanoUsd::ZERO, std::iter::empty());
            return Ok(ReadAttempt::Done(Box::new(Some(audit))));
        };
        let mut expected = ExpectedEntries::default();
        let mut balances = self.all_balances(&space, &mut expected).await?;
        let mut reading = self.begin_reading(account, record.entries).await?;
        // Even entries that are newer than the account's record have been dropped. Balances may include them, so this
        // attempt fails.
        if reading.next > record.entries.saturating_add(1) {
            return Ok(ReadAttempt::Overtaken);
        }
        for balance in &balances {
            balance.tell_bounds(&mut reading.auditor);
        }
        self.prove_account(account, &moment, &mut reading.auditor).await?;
        self.prove_holds(account, &mut reading.auditor).await?;
        self.prove_counts(&space, &mut reading.auditor).await?;
        self.prove_indexes(&space, expected, &mut reading.auditor).await?;
        self.prove_wallets(&space, &mut reading.auditor).await?;
        self.prove_events(&space, &mut reading.auditor).await?;
        for _ in 0..LATE_ROUNDS {
            if !self.read_on(account, &mut reading, balances).await? {
                return Ok(ReadAttempt::Overtaken);
            }
            // An entry may name a key or group that was created after the balances were read.
            let unknown: Vec<BudgetOwner> = reading.auditor.unknown().collect();
            balances = Vec::new();
            for owners in unknown.chunks(AT_ONCE) {
                balances.extend(self.balances_of(&space, owners, None).await?);
            }
            if balances.is_empty() {
                let audit = self.finish(account, reading, &moment, record).await?;
                return Ok(ReadAttempt::Done(Box::new(Some(audit))));
            }
        }
        Ok(ReadAttempt::Overtaken)
    }

    /// Compares the figures that can be proven only after the whole journal has been read.
    async fn finish(
        &self,
        account: AccountId,
        reading: JournalRead,
        moment: &AccountMoment,
        record: AccountRecord,
    ) -> Result<Audit, StoreError> {
        let JournalRead { mut auditor, next, sums, bills, last_expiry, .. } = reading;
        sums.finish(&mut auditor);
        self.finish_remembered(bills, next, &mut auditor).await?;
        // A recorded time that is too late does no harm: bills are only kept for longer.
        let recorded = record.last_expiry.unwrap_or(Timestamp::from_millis(0));
        if let Some(proven) = last_expiry.filter(|at| recorded.plus(EXPIRY_LATE) < *at) {
            let count = |at: Timestamp| Quantity::Count(at.millis().unsigned_abs());
            auditor.quantity(Figure::LastExpiry, count(recorded), count(proven));
        }
        let deposits = self.prove_deposits(account, moment, &mut auditor).await?;
        Ok(auditor.account(record.money, moment.held(), deposits.into_iter()))
    }

    /// Starts to read the journal at the first entry that still exists.
    async fn begin_reading(&self, account: AccountId, entries: u64) -> Result<JournalRead, StoreError> {
        let (log, order) = (names::JOURNAL, Order::Ascending);
        let first = Question::Values { log, from: 0, to: u64::MAX, order, limit: 1 };
        let records = Question::Records(vec![names::account().into(), names::house().into()]);
        let answers = self.read().ask(&names::space(account), vec![records, first]).await?;
        let [Answer::Records(records), Answer::Values(first)] = &answers[..] else { return Err(no_answer()) };
        let first = first.first().map(|(number, value)| journal_entry(*number, value)).transpose()?;
        let number = first.as_ref().map_or(1, |first| first.number);
        let lowest = self.lowest_first(records)?;
        let begins_at =
            first.as_ref().filter(|first| first.number > 1).map(|first| first.entry.settlement.at);
        let whole_from = first.filter(|first| first.number > 1).map(|first| {
            // Earlier entries of the first entry's day may have been dropped, so sums are compared from the next day
            // on.
            Day::of(first.entry.settlement.at.plus(LATE)).plus(1)
        });
        let whole_from = whole_from.unwrap_or(Day::of(Timestamp::from_millis(0)));
        let mut auditor = Auditor::new(number == 1).paid(entries);
        auditor.begins(number);
        if number > lowest {
            auditor.quantity(Figure::FirstEntry, Quantity::Count(number), Quantity::Count(lowest));
        }
        let bills = self.begin_remembered(account).await?;
        let sums = DaySums::new(whole_from, entries, begins_at);
        let (numbers, listings) = (LastNumbers::new(number == 1), PayerListings::default());
        let (next, until, paid, last_expiry) = (number, entries, entries, None);
        Ok(JournalRead { auditor, next, until, paid, numbers, sums, listings, bills, last_expiry })
    }

    /// Returns the highest number that the journal's first entry may have. The records of the account and of
    /// housekeeping show that neither the entry with this number nor any later entry was dropped.
    fn lowest_first(&self, records: &[Option<Record>]) -> Result<u64, StoreError> {
        let [account, house] = records else { return Err(no_answer()) };
        let Some(most) = self.journal_entries else {
            // This store drops no entries, but the store that it was copied from may have dropped some.
            let house = house.as_ref().map(value::<House>).transpose()?;
            return Ok(house.map_or(1, |house| house.journal.max(1)));
        };
        let account = account.as_ref().map(value::<AccountRecord>).transpose()?.unwrap_or_default();
        let fewest = most.min(FEWEST_KEPT);
        Ok(account.entries.saturating_add(1).saturating_sub(fewest).max(1))
    }

    /// Reads the journal up to the last entry that the account or a balance includes. Compares each balance right after
    /// the last entry that the balance includes. Returns `false` if entries were dropped before they were read.
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
            let range = reading.next..=reading.until;
            let found = self.read().values(&space, names::JOURNAL, range, Order::Ascending, AT_ONCE).await?;
            if found.is_empty() {
                if self.first_number(&space).await? > reading.next {
                    return Ok(false);
                }
                reading.next = reading.until.saturating_add(1);
                break;
            }
            let mut entries = Vec::with_capacity(found.len());
            for (number, value) in found {
                if number > reading.next && self.first_number(&space).await? > reading.next {
                    return Ok(false);
                }
                reading.next = number.saturating_add(1);
                entries.push(journal_entry(number, &value)?);
            }
            self.compare_remembered(&mut reading.bills, &entries).await?;
            for entry in entries {
                self.add_entry(account, reading, &mut balances, entry).await?;
            }
        }
        // These balances include the last entry, or claim to include an entry that does not exist.
        while let Some(balance) = balances.pop() {
            balance.add_to(&mut reading.auditor, &reading.numbers);
        }
        Ok(true)
    }

    /// Adds the next journal entry. Before that, compares the balances that do not include it.
    async fn add_entry(
        &self,
        account: AccountId,
        reading: &mut JournalRead,
        balances: &mut Vec<Balanced>,
        entry: JournalEntry,
    ) -> Result<(), StoreError> {
        let number = entry.number;
        reading.add_balances(balances, number);
        reading.numbers.add(&mut reading.auditor, &entry);
        let (generation, entry) = (entry.generation, entry.entry);
        let bill = &entry.settlement;
        if bill.ending == Ending::Expired && number <= reading.paid {
            reading.last_expiry = Some(bill.at);
        }
        let day = Day::of(bill.at);
        if reading.sums.needs(day) {
            reading.until = reading.until.max(self.load_sums(account, day, reading).await?);
        }
        reading.sums.add(number, generation, &entry);
        reading.auditor.bill(generation, &entry);
        reading.auditor.entry(AuditedEntry::of(number, &entry));
        Ok(())
    }

    /// Returns the number of the first existing entry; 1 for an empty journal, because the last entry is never dropped.
    async fn first_number(&self, space: &Space) -> Result<u64, StoreError> {
        let first = self.read().values(space, names::JOURNAL, 0..=u64::MAX, Order::Ascending, 1).await?;
        Ok(first.first().map_or(1, |(number, _)| *number))
    }

    /// Loads a day's sums. Returns the number of the last entry that they include.
    async fn load_sums(
        &self,
        account: AccountId,
        day: Day,
        reading: &mut JournalRead,
    ) -> Result<u64, StoreError> {
        let (reader, mut found) = (SumsReader::new(self.records, account), Vec::new());
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
        let house = self.read().get::<House>(&names::space(account), names::house()).await?;
        let is_dropped = house.is_some_and(|house| house.sums > names::day_part(day));
        Ok(reading.sums.load(&mut reading.auditor, day, (!is_dropped).then_some(found)))
    }
}

impl JournalRead {
    /// Passes to the audit the balances whose last entry comes before this number.
    fn add_balances(&mut self, balances: &mut Vec<Balanced>, number: u64) {
        while let Some(balance) = balances.pop_if(|balance| balance.last_entry < number) {
            balance.add_to(&mut self.auditor, &self.numbers);
        }
    }
}
