//! A model of a store: maps that only the ledger changes.

use std::collections::{BTreeMap, HashMap};

use shared::{
    ids::{AccountId, GenerationId, GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

use super::{ACCOUNTS, GROUPS, KEYS, account, group, key};
use crate::{
    books::usage::{Counts, Day, DayTotal, added},
    group::{GroupPatch, may_be_parent, takes_keys},
    key::{ApiKey, KeyPatch, NewCredential},
    ledger::{
        Account, Budget, CallEvents, Command, EntriesBefore, Entry, Group, Holder, Key, Outcome, Payer,
        Record, RecordId, Refused, StandingAct, State, Told, apply, entry, passed_by_bounds,
    },
};

/// The state of a store: everything that commands read and write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct World {
    pub accounts: HashMap<AccountId, Account>,
    pub keys: HashMap<(AccountId, KeyId), Key>,
    pub groups: HashMap<(AccountId, GroupId), Group>,
    /// Holds, settlements and deposits.
    pub records: HashMap<(AccountId, RecordId), Record>,
    /// Events, with the names of reported thresholds.
    pub events: HashMap<AccountId, Vec<Told>>,
    pub trails: HashMap<AccountId, Trail>,
}

/// The journal and counters of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trail {
    /// Entries, numbered from 1.
    pub journal: Vec<(GenerationId, Entry)>,
    pub counted: BTreeMap<(Day, Payer), DayTotal<Counts>>,
}

impl Trail {
    /// Returns, for each entry, the numbers of the entries before it.
    pub fn before(&self) -> Vec<EntriesBefore> {
        let (mut keys, mut groups) = (HashMap::new(), HashMap::new());
        let before = |(number, (_, entry)): (u64, &(GenerationId, Entry))| {
            let payer = &entry.settlement.payer;
            EntriesBefore {
                key: keys.insert(payer.key, number).unwrap_or_default(),
                groups: payer
                    .groups
                    .map(|group| group.and_then(|group| groups.insert(group, number)).unwrap_or_default()),
            }
        };
        (1..).zip(&self.journal).map(before).collect()
    }
}

impl World {
    /// Creates accounts without credit. The first key of each has no limit and no group.
    pub fn new() -> Self {
        let mut world = Self::default();
        for a in 0..ACCOUNTS {
            world.accounts.insert(account(a), Account::default());
            for g in 0..GROUPS {
                let parent = (g == 1).then_some(group(0));
                world.groups.insert((account(a), group(g)), Group { parent, ..Group::default() });
            }
            for k in 0..KEYS {
                let limit = (k > 0).then_some(NanoUsd::from_nanos(600 * i64::from(k)));
                let budget = Budget { limit, ..Budget::default() };
                let group = (k > 0).then_some(group(k));
                world.keys.insert((account(a), key(k)), Key { budget, group, ..Key::default() });
            }
        }
        world
    }

    /// Applies the commands of a call, as every store must.
    pub fn execute(
        &mut self,
        account: AccountId,
        commands: &[Command],
        now: Timestamp,
    ) -> Vec<Result<Outcome, Refused>> {
        let before = self.accounts.get(&account).copied().unwrap_or_default();
        let mut events = CallEvents::new(account, &before, now);
        let outcomes = commands.iter().map(|command| self.run(account, command, now, &mut events)).collect();
        let after = self.accounts.get(&account).copied().unwrap_or_default();
        self.tell(account, events.finish(&after));
        outcomes
    }

    /// Adds events, except thresholds that were reported before.
    fn tell(&mut self, account: AccountId, events: Vec<Told>) {
        for event in events {
            let told = self.events.entry(account).or_default();
            if event.once.is_none() || told.iter().all(|told| told.once != event.once) {
                told.push(event);
            }
        }
    }

    /// Applies a command as a separate call.
    pub fn apply(
        &mut self,
        account: AccountId,
        command: &Command,
        now: Timestamp,
    ) -> Result<Outcome, Refused> {
        self.execute(account, std::slice::from_ref(command), now).remove(0)
    }

    fn run(
        &mut self,
        account: AccountId,
        command: &Command,
        now: Timestamp,
        events: &mut CallEvents,
    ) -> Result<Outcome, Refused> {
        let money = self.accounts.get(&account).copied().ok_or(Refused::UnknownKey)?;
        let (key_id, record_id) =
            (command.key().map(|k| (account, k)), command.record().map(|r| (account, r)));
        let key = key_id.and_then(|id| self.keys.get(&id)).cloned();
        let record = record_id.and_then(|id| self.records.get(&id)).cloned().unwrap_or_default();
        let before = record.clone();
        let group = |id| Ok::<_, Refused>(self.groups.get(&(account, id)).cloned());
        let state = State::load(money, key, record, command.wallet(), group)?;
        let state_before = state.clone();
        let applied = apply(state, command, now);
        let (after, outcome) =
            applied.inspect_err(|refused| events.refused(command, &state_before, refused))?;
        events.applied(command, &state_before, &after);
        if let (Some((_, RecordId::Generation(id))), Some(entry)) = (record_id, entry(&before, &after)) {
            let trail = self.trails.entry(account).or_default();
            let added = added(&before, &entry);
            let counts = trail.counted.entry((added.day, added.payer.clone())).or_default();
            counts.add(added.hour, added.counts);
            trail.journal.push((id, entry));
        }
        self.accounts.insert(account, after.account);
        if let (Some(id), Some(key)) = (key_id, after.key) {
            self.keys.insert(id, key);
        }
        for (id, group) in after.groups.into_iter().flatten() {
            self.groups.insert((account, id), group);
        }
        match (record_id, after.record) {
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

    /// Applies an owner's change, unless its raise is invalid. A revoked key does not change, and a key only moves to a
    /// group that accepts keys. Returns all thresholds that the change crosses, even if they were reported before.
    pub fn update(&mut self, account: AccountId, key: KeyId, patch: &KeyPatch, now: Timestamp) -> Vec<Told> {
        let find = |id| self.groups.get(&(account, id));
        let group = patch.group.flatten().map(find);
        if group.is_some_and(|of| takes_keys(of, of.and_then(|group| group.parent).and_then(find)).is_err()) {
            return Vec::new();
        }
        let id = key;
        if let Some(key) = self.keys.get_mut(&(account, id)).filter(|key| key.revoked_at.is_none())
            && patch.bounds.judge_raises(&key.budget, now).is_ok()
        {
            let before = key.budget.clone();
            key.budget.update(&patch.bounds, now);
            if patch.bounds.windows.is_some() {
                let money = self.accounts.get(&account).copied().unwrap_or_default();
                key.budget.begin_windows(now, money.windows_begin(now));
            }
            key.group = patch.group.unwrap_or(key.group);
            key.expires_at = patch.expires_at.unwrap_or(key.expires_at);
            key.disabled = patch.disabled.unwrap_or(key.disabled);
            let passed = passed_by_bounds(Holder::Key(id, key.group), Some(&before), &key.budget, now);
            self.tell(account, passed.clone());
            return passed;
        }
        Vec::new()
    }

    /// Applies an owner's change of a group. An archived group does not change. Returns all thresholds that the change
    /// crosses, even if they were reported before.
    pub fn update_group(
        &mut self,
        account: AccountId,
        id: GroupId,
        patch: &GroupPatch,
        now: Timestamp,
    ) -> Vec<Told> {
        if let Some(Some(parent)) = patch.parent {
            let children = |((of, _), group): (&(AccountId, GroupId), &Group)| {
                *of == account && group.parent == Some(id)
            };
            let has_children = self.groups.iter().any(children);
            let found = self.groups.get(&(account, parent));
            if may_be_parent(parent, found, id, has_children).is_err() {
                return Vec::new();
            }
        }
        if let Some(group) = self.groups.get_mut(&(account, id)).filter(|group| group.archived_at.is_none())
            && group.paid_limit(&patch.bounds).is_none()
            && patch.bounds.judge_raises(&group.budget, now).is_ok()
        {
            let before = group.budget.clone();
            group.budget.update(&patch.bounds, now);
            if patch.bounds.windows.is_some() {
                let money = self.accounts.get(&account).copied().unwrap_or_default();
                group.budget.begin_windows(now, money.windows_begin(now));
            }
            group.parent = patch.parent.unwrap_or(group.parent);
            let passed = passed_by_bounds(Holder::Group(id), Some(&before), &group.budget, now);
            self.tell(account, passed.clone());
            return passed;
        }
        Vec::new()
    }

    /// Archives a group; repeating this changes nothing.
    pub fn archive(&mut self, account: AccountId, id: GroupId, now: Timestamp) {
        if let Some(group) = self.groups.get_mut(&(account, id)) {
            group.archived_at.get_or_insert(now.to_whole_seconds());
        }
    }

    /// Suspends, restores or closes an account, unless that is refused.
    pub fn stand(&mut self, account: AccountId, act: &StandingAct, now: Timestamp) {
        if let Some(money) = self.accounts.get_mut(&account) {
            *money = money.after(act, now.to_whole_seconds()).unwrap_or(*money);
        }
    }

    /// Applies a rotation by the owner, unless [`ApiKey::rotated`] refuses it.
    pub fn rotate(&mut self, new: &NewCredential, now: Timestamp) {
        let Some(spend) = self.keys.get_mut(&(new.account, new.key)) else { return };
        let key = ApiKey { spend: spend.clone(), ..ApiKey::new(new.key, String::new(), now) };
        if let Ok(rotated) = key.rotated(new, now) {
            *spend = rotated.spend;
        }
    }

    /// Revokes a key; repeating this changes nothing.
    pub fn revoke(&mut self, account: AccountId, key: KeyId, now: Timestamp) {
        if let Some(key) = self.keys.get_mut(&(account, key)) {
            key.revoked_at.get_or_insert(now.to_whole_seconds());
        }
    }

    /// Returns the sum of the payers' open holds, and of the charges of their settlements.
    pub fn booked(&self, account: AccountId, pays: impl Fn(&Payer) -> bool) -> (NanoUsd, NanoUsd) {
        let (mut held, mut charged) = (0, 0);
        for ((of, _), record) in &self.records {
            match record {
                Record::Open(open) if *of == account && pays(&open.payer) => held += open.amount.nanos(),
                Record::Closed(closed) if *of == account && pays(&closed.payer) => {
                    charged += closed.charged.nanos();
                }
                Record::None | Record::Open(_) | Record::Closed(_) | Record::Deposited(_) => {}
            }
        }
        (NanoUsd::from_nanos(held), NanoUsd::from_nanos(charged))
    }

    /// Returns the sum of what payments and refunds changed in a group's wallet.
    pub fn paid(&self, account: AccountId, group: GroupId) -> NanoUsd {
        let changes = self.records.iter().filter_map(|((of, _), record)| match record {
            Record::Deposited(deposited) if *of == account => deposited.wallet,
            Record::None | Record::Open(_) | Record::Closed(_) | Record::Deposited(_) => None,
        });
        let of_group = changes.filter(|change| change.group == group);
        NanoUsd::from_nanos(of_group.map(|change| change.change.nanos()).sum())
    }

    /// Returns the sum of an account's deposits, less its refunds.
    pub fn deposited(&self, account: AccountId) -> NanoUsd {
        let deposits = self.records.iter().map(|((of, _), record)| match record {
            Record::Deposited(deposited) if *of == account => deposited.amount.nanos(),
            Record::None | Record::Open(_) | Record::Closed(_) | Record::Deposited(_) => 0,
        });
        NanoUsd::from_nanos(deposits.sum())
    }
}
