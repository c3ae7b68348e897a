//! The contents of the store in memory, by account.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::{Bound, RangeInclusive},
};

use shared::{
    ids::{AccountId, GenerationId, GroupId, KeyId, ManagementKeyId, MemberId, WebhookId},
    money::NanoUsd,
    time::Timestamp,
};

use super::webhooks::WebhookBook;
use crate::store::{
    Created, Credential, Deposit, ExpiringRecord, Hour, Idempotency, JournalEntry, ManagementKey, NewAccount,
    NumberedEvent, RecordKind, SpendLine, StoreError, UsageLine, suite::Fault,
};
use domain::{
    audit::{Audit, AuditedEntry, Auditor},
    digest::Digest,
    group::{self, BadGroup, Group},
    key::{ApiKey, NewKey},
    ledger::{self, CallEvents, Command, Entry, Outcome, Payer, Record, RecordId, Refused, State, Told},
    member::Member,
    usage::{self, Counts, Day, Margin, Sums},
};

#[derive(Debug, Default)]
pub(super) struct Shelf {
    pub(super) accounts: BTreeMap<AccountId, AccountBook>,
    pub(super) credentials: HashMap<Digest, Credential>,
    pub(super) pepper_record: Option<String>,
    /// Attempts under a name, and when they are forgotten.
    pub(super) attempts: HashMap<Digest, (u64, Timestamp)>,
    /// Set by tests: memory has no bound of its own.
    pub(super) is_nearly_full: bool,
}

/// Records of one account.
#[derive(Debug)]
pub(super) struct AccountBook {
    pub(super) name: String,
    pub(super) created_at: Timestamp,
    pub(super) money: ledger::Account,
    pub(super) management_keys: BTreeMap<ManagementKeyId, ManagementKey>,
    pub(super) keys: BTreeMap<KeyId, ApiKey>,
    pub(super) groups: BTreeMap<GroupId, Group>,
    pub(super) records: HashMap<RecordId, Record>,
    /// The entries, numbered from one.
    journal: BTreeMap<u64, (GenerationId, Entry)>,
    usage: BTreeMap<(Day, Payer), Counts>,
    pub(super) idempotency: HashMap<Digest, IdempotencyRecord>,
    pub(super) members: BTreeMap<MemberId, Member>,
    pub(super) expiring: HashMap<(RecordKind, Digest), ExpiringRecord>,
    pub(super) webhooks: BTreeMap<WebhookId, WebhookBook>,
    /// Opening balances of imported keys and groups.
    pub(super) openings: (HashMap<KeyId, NanoUsd>, HashMap<GroupId, NanoUsd>),
    pub(super) events: Vec<NumberedEvent>,
    /// Names of thresholds that were told.
    pub(super) told_once: HashSet<Vec<u8>>,
    /// Number of the last event.
    pub(super) told: u64,
    /// Counts of refused calls.
    pub(super) refused: BTreeMap<(KeyId, Hour, &'static str), u64>,
}

/// The request of an idempotency key, and the id of the object that it made.
#[derive(Debug)]
pub(super) struct IdempotencyRecord {
    pub(super) request: Digest,
    made: [u8; 16],
    pub(super) expires_at: Timestamp,
}

impl Shelf {
    pub(super) fn account(&mut self, id: AccountId) -> Result<&mut AccountBook, StoreError> {
        self.accounts.get_mut(&id).ok_or_else(|| StoreError::no_account(id))
    }
}

impl AccountBook {
    pub(super) fn new(account: NewAccount) -> Self {
        Self {
            name: account.name,
            created_at: account.created_at,
            money: ledger::Account::default(),
            management_keys: BTreeMap::new(),
            keys: BTreeMap::new(),
            groups: BTreeMap::new(),
            records: HashMap::new(),
            journal: BTreeMap::new(),
            usage: BTreeMap::new(),
            idempotency: HashMap::new(),
            members: BTreeMap::new(),
            expiring: HashMap::new(),
            webhooks: BTreeMap::new(),
            openings: (HashMap::new(), HashMap::new()),
            events: Vec::new(),
            told_once: HashSet::new(),
            told: 0,
            refused: BTreeMap::new(),
        }
    }

    /// Applies the commands of a call, and writes their events.
    pub(super) fn execute(
        &mut self,
        account: AccountId,
        commands: &[Command],
        now: Timestamp,
    ) -> Vec<Result<Outcome, Refused>> {
        let mut events = CallEvents::new(account, &self.money, now);
        let outcomes = commands.iter().map(|command| self.apply(command, now, &mut events)).collect();
        for Told { once, event } in events.finish(&self.money) {
            if once.is_none_or(|once| self.told_once.insert(once)) {
                self.tell(event);
            }
        }
        outcomes
    }

    /// Loads the state, applies the command, and writes the result.
    fn apply(
        &mut self,
        command: &Command,
        now: Timestamp,
        events: &mut CallEvents,
    ) -> Result<Outcome, Refused> {
        let before = command.record().and_then(|id| self.records.get(&id)).cloned().unwrap_or_default();
        let key = command.key().and_then(|id| self.keys.get(&id)).map(|key| key.spend.clone());
        let group = |id| Ok::<_, Refused>(self.groups.get(&id).map(|group| group.spend.clone()));
        let state = State::load(self.money, key, before.clone(), group)?;
        let state_before = state.clone();
        let applied = ledger::apply(state, command, now);
        let (after, outcome) =
            applied.inspect_err(|refused| events.refused(command, &state_before, refused))?;
        events.applied(command, &state_before, &after);
        if let (Some(RecordId::Generation(generation)), Some(entry)) =
            (command.record(), ledger::entry(&before, &after))
        {
            self.append(generation, &before, entry);
        }
        self.money = after.account;
        if let (Some(key), Some(spend)) = (command.key().and_then(|id| self.keys.get_mut(&id)), after.key) {
            key.spend = spend;
        }
        for (id, spend) in after.groups.into_iter().flatten() {
            self.groups.entry(id).and_modify(|group| group.spend = spend);
        }
        match (command.record(), after.record) {
            (None, _) => {}
            (Some(id), Record::None) => {
                self.records.remove(&id);
            }
            (Some(id), record) => {
                self.records.insert(id, record);
            }
        }
        Ok(outcome)
    }

    fn append(&mut self, generation: GenerationId, before: &Record, entry: Entry) {
        let added = usage::added(before, &entry);
        let counts = self.usage.entry((added.day, added.payer)).or_default();
        *counts = counts.plus(added.counts);
        let number = self.journal.last_key_value().map_or(1, |(last, _)| last + 1);
        self.journal.insert(number, (generation, entry));
    }

    pub(super) fn has_holds(&self) -> bool {
        self.records.values().any(|record| matches!(record, Record::Open(_)))
    }

    /// Returns the answer to a key that cannot be made.
    pub(super) fn refused(&self, new: &NewKey) -> Option<Created> {
        if self.is_full(new) {
            return Some(Created::TooMany);
        }
        self.takes_key(new.key.spend.group).err().map(Created::BadGroup)
    }

    /// Judges whether a key may be in this group, if any.
    pub(super) fn takes_key(&self, group: Option<GroupId>) -> Result<(), BadGroup> {
        let Some(id) = group else { return Ok(()) };
        let find = |id| self.groups.get(&id).map(|group| &group.spend);
        group::takes_keys(find(id), find(id).and_then(|group| group.parent).and_then(find))
    }

    /// Returns whether the account has as many keys as it may, and not this one.
    pub(super) fn is_full(&self, new: &NewKey) -> bool {
        self.keys.len() as u64 >= new.most && !self.keys.contains_key(&new.key.id)
    }

    /// What a live idempotency key has made, unless with another request.
    pub(super) fn idempotent(&self, attempt: &Idempotency) -> Option<Result<[u8; 16], ()>> {
        let record = self.idempotency.get(&attempt.key).filter(|record| record.expires_at > attempt.now)?;
        Some(if record.request == attempt.request { Ok(record.made) } else { Err(()) })
    }

    /// Answer of a live idempotency key to the creation of this key.
    pub(super) fn repeated(&self, new: &ApiKey, attempt: &Idempotency) -> Option<Created> {
        let Ok(id) = self.idempotent(attempt)? else { return Some(Created::Reused) };
        let made = self.keys.get(&KeyId::from_slice(&id)?)?.clone();
        Some(if made.id == new.id { Created::New(made) } else { Created::Replayed(made) })
    }

    /// Keeps an idempotency key until it expires, in place of those that have.
    pub(super) fn keep_idempotency_record(&mut self, attempt: &Idempotency, made: &[u8; 16]) {
        self.idempotency.retain(|_, record| record.expires_at > attempt.now);
        let Idempotency { key, request, expires_at, .. } = *attempt;
        self.idempotency.insert(key, IdempotencyRecord { request, made: *made, expires_at });
    }

    pub(super) fn entries_behind(&self, after: u64, limit: usize) -> Vec<JournalEntry> {
        self.journal
            .range((Bound::Excluded(after), Bound::Unbounded))
            .take(limit)
            .map(journal_entry)
            .collect()
    }

    pub(super) fn latest_entries(&self, before: Option<u64>, limit: usize) -> Vec<JournalEntry> {
        let before = before.map_or(Bound::Unbounded, Bound::Excluded);
        self.journal.range((Bound::Unbounded, before)).rev().take(limit).map(journal_entry).collect()
    }

    pub(super) fn latest_deposits(&self, limit: usize) -> Vec<Deposit> {
        let deposit = |(id, record): (&RecordId, &Record)| match (id, record) {
            (RecordId::Deposit(id), Record::Deposited(deposited)) => {
                Some(Deposit { id: *id, deposited: deposited.clone() })
            }
            _ => None,
        };
        let mut deposits: Vec<Deposit> = self.records.iter().filter_map(deposit).collect();
        deposits.sort_by_key(|deposit| std::cmp::Reverse((deposit.at(), deposit.id)));
        deposits.truncate(limit);
        deposits
    }

    pub(super) fn usage_of(&self, days: &RangeInclusive<Day>, only: Option<&[KeyId]>) -> Vec<UsageLine> {
        let wanted = self.usage.iter().filter(|((day, payer), _)| {
            days.contains(day) && only.is_none_or(|keys| keys.contains(&payer.key))
        });
        wanted
            .map(|((day, payer), counts)| UsageLine { day: *day, payer: payer.clone(), counts: *counts })
            .collect()
    }

    pub(super) fn spend_of(&self, days: &RangeInclusive<Day>) -> Vec<SpendLine> {
        let mut lines: BTreeMap<(Day, &str), Sums> = BTreeMap::new();
        for ((day, payer), counts) in self.usage.iter().filter(|((day, _), _)| days.contains(day)) {
            let sums = lines.entry((*day, &payer.model)).or_default();
            *sums = sums.plus(Sums::from(*counts));
        }
        lines
            .into_iter()
            .map(|((day, model), sums)| SpendLine { day, model: model.to_owned(), sums })
            .collect()
    }

    /// Sums of these days, apart by a part of the payer.
    pub(super) fn margins_by<P: Ord>(
        &self,
        days: &RangeInclusive<Day>,
        part: impl Fn(&Payer) -> P,
    ) -> BTreeMap<P, Margin> {
        let mut margins: BTreeMap<P, Margin> = BTreeMap::new();
        for ((_, payer), counts) in self.usage.iter().filter(|((day, _), _)| days.contains(day)) {
            let margin = margins.entry(part(payer)).or_default();
            *margin = margin.plus(Margin::from(*counts));
        }
        margins
    }

    pub(super) fn audit(&self) -> Audit {
        let mut auditor = Auditor::new(true);
        for (number, (_, entry)) in &self.journal {
            auditor.entry(AuditedEntry::of(*number, entry));
        }
        let (mut holds, mut deposits) = (Vec::new(), Vec::new());
        for record in self.records.values() {
            match record {
                Record::Open(hold) => holds.push(hold),
                Record::Deposited(deposited) => deposits.push(deposited.amount),
                Record::None | Record::Closed(_) => {}
            }
        }
        let held = |of: &dyn Fn(&Payer) -> bool| {
            let holds = holds.iter().filter(|hold| of(&hold.payer));
            NanoUsd::from_nanos(holds.map(|hold| hold.amount.nanos()).sum())
        };
        for (id, key) in &self.keys {
            let opening = self.openings.0.get(id).copied().unwrap_or_default();
            auditor.key(*id, &key.spend, opening, held(&|payer| payer.key == *id));
        }
        for (id, group) in &self.groups {
            let opening = self.openings.1.get(id).copied().unwrap_or_default();
            auditor.group(*id, &group.spend, opening, held(&|payer| payer.is_in(*id)));
        }
        let held = held(&|_| true);
        auditor.account(self.money, held, deposits.into_iter())
    }

    /// Writes directly, without the ledger.
    pub(super) fn doctor(&mut self, fault: Fault) {
        let one_more = |amount: NanoUsd| NanoUsd::from_nanos(amount.nanos() + 1);
        match fault {
            Fault::Used(key) => {
                let spend = &mut self.keys.get_mut(&key).unwrap().spend;
                spend.budget.used = one_more(spend.budget.used);
            }
            Fault::Credit => self.money.credit = one_more(self.money.credit),
            Fault::LostEntry(lost) => self.journal.retain(|_, (generation, _)| *generation != lost),
            Fault::PhantomHold(phantom, like) => {
                let hold = self.records[&RecordId::Generation(like)].clone();
                self.records.insert(RecordId::Generation(phantom), hold);
            }
        }
    }
}

fn journal_entry((number, (generation, entry)): (&u64, &(GenerationId, Entry))) -> JournalEntry {
    JournalEntry { number: *number, generation: *generation, entry: entry.clone() }
}
