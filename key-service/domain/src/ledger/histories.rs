//! Random histories of a few accounts, and a model store that executes them with the ledger alone. Used to test the
//! ledger, and every store against the ledger.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use proptest::{collection::vec, option, prelude::*, sample::select};
use shared::{
    ids::{AccountId, DepositId, GenerationId, GroupId, KeyId},
    money::NanoUsd,
    rates::RateStatus,
    time::Timestamp,
    tokens::Usage,
};

use super::{
    Account, BoundsPatch, Budget, Command, Entry, Group, Key, Level, Outcome, Payer, Progress, Record,
    RecordId, Refused, State, apply, entry,
};
use crate::{
    key::KeyPatch,
    usage::{Counts, Day, added},
};

/// Number of existing accounts; the next number is an account that does not exist.
pub const ACCOUNTS: u8 = 2;
/// Number of keys per account; the next number is a key that does not exist.
pub const KEYS: u8 = 3;
/// Number of generations per account. The last two have ids of another time: see [`of_history`].
pub const GENERATIONS: u8 = 12;

/// Start of all histories.
pub const START: Timestamp = Timestamp::from_millis(1_795_140_665_000);

/// A step of a history.
#[derive(Clone, Debug)]
pub enum Step {
    /// Commands to an account, executed together.
    Execute(AccountId, Vec<Command>),
    /// The owner changes a key.
    Update(AccountId, KeyId, KeyPatch),
    /// The owner revokes a key.
    Revoke(AccountId, KeyId),
    /// Time passes.
    Wait(Duration),
}

/// Generates histories that overspend, repeat commands, and name keys and generations of other owners.
pub fn history() -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..40)
}

/// The account of this number.
pub fn account(n: u8) -> AccountId {
    AccountId::new(START, chance(n))
}

/// The key of this number, in whatever account.
pub fn key(n: u8) -> KeyId {
    KeyId::new(START, chance(n))
}

/// The group of this number, in whatever account.
pub fn group(n: u8) -> GroupId {
    GroupId::new(START, chance(n))
}

/// The generation of this number, in whatever account.
pub fn generation(n: u8) -> GenerationId {
    GenerationId::new(START, chance(n))
}

/// The generation of this number in histories. The last but one has an id from a gateway whose clock is too far
/// ahead, the last an id older than stores remember.
pub fn of_history(n: u8) -> GenerationId {
    match GENERATIONS - n {
        1 => GenerationId::new(START.minus(Duration::from_hours(3)), chance(n)),
        2 => GenerationId::new(START.plus(Duration::from_mins(10)), chance(n)),
        _ => generation(n),
    }
}

/// The deposit of this number, in whatever account.
pub fn deposit(n: u8) -> DepositId {
    DepositId::new(START, chance(n))
}

/// The outcome of a hold at budgets without rates.
pub fn held(amount: NanoUsd) -> Outcome {
    Outcome::Held { amount, rates: RateStatus::default() }
}

/// The refusal of a key whose lifetime limit is reached.
pub const KEY_LIMIT_REACHED: Refused = Refused::LimitReached { level: Level::Key, resets_at: None };

/// Random part of an id. Larger numbers sort behind smaller numbers.
fn chance(n: u8) -> [u8; 10] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, n]
}

fn step() -> impl Strategy<Value = Step> {
    let owned = || (0..ACCOUNTS, 0..KEYS).prop_map(|(a, k)| (account(a), key(k)));
    let patch = (option::of(option::of(nanos(0..1_500))), option::of(option::of(time()))).prop_map(
        |(limit, expires_at)| KeyPatch {
            bounds: BoundsPatch { limit, ..BoundsPatch::default() },
            expires_at,
            ..KeyPatch::default()
        },
    );
    prop_oneof![
        20 => (0..=ACCOUNTS, vec(command(), 1..12)).prop_map(|(a, c)| Step::Execute(account(a), c)),
        4 => (0..20_u64).prop_map(|seconds| Step::Wait(Duration::from_secs(seconds))),
        1 => (1..4_u64).prop_map(|hours| Step::Wait(Duration::from_hours(hours))),
        2 => (owned(), patch).prop_map(|((a, k), patch)| Step::Update(a, k, patch)),
        1 => owned().prop_map(|(a, k)| Step::Revoke(a, k)),
    ]
}

fn command() -> impl Strategy<Value = Command> {
    let key = || (0..=KEYS).prop_map(key);
    // Most commands of a generation name the same key, as outside of tests.
    let ids = || {
        (0..GENERATIONS, 0..10_u8, 0..=KEYS)
            .prop_map(|(g, stray, k)| (self::key(if stray == 0 { k } else { g % KEYS }), of_history(g)))
    };
    let bounds = (nanos(0..300), nanos(0..200), nanos(0..500));
    prop_oneof![
        3 => ((0..20_u8).prop_map(deposit), deposited())
            .prop_map(|(id, amount)| Command::Deposit { id, amount }),
        4 => option::of(0..12_u64).prop_map(|seen| Command::Tick { seen }),
        1 => key().prop_map(|key| Command::Check { key }),
        8 => (ids(), model(), bounds, 0..60_u64, 0..4_u64).prop_map(
            |((key, generation), model, (least, enough, most), prompt_tokens, lease_ticks)| {
                let enough = NanoUsd::from_nanos(least.nanos().saturating_add(enough.nanos()));
                let most = NanoUsd::from_nanos(enough.nanos().saturating_add(most.nanos()));
                Command::Hold { key, generation, model, least, enough, most, prompt_tokens, lease_ticks }
            }
        ),
        4 => (ids(), nanos(0..900), progress(), 0..4_u64).prop_map(
            |((key, generation), most, progress, lease_ticks)| {
                Command::Extend { key, generation, most, progress, lease_ticks }
            }
        ),
        5 => (ids(), model(), progress(), any::<bool>()).prop_map(
            |((key, generation), model, total, estimated)| {
                Command::Capture { key, generation, model, total, estimated }
            }
        ),
        2 => ids().prop_map(|(key, generation)| Command::Release { key, generation }),
        4 => ids().prop_map(|(key, generation)| Command::Expire { key, generation }),
    ]
}

fn model() -> impl Strategy<Value = String> {
    select(vec!["Model Flash", "Model Max"]).prop_map(String::from)
}

/// Mostly small amounts, so that sums reach limits; sometimes the largest possible.
fn nanos(small: std::ops::Range<i64>) -> impl Strategy<Value = NanoUsd> {
    prop_oneof![19 => small.prop_map(NanoUsd::from_nanos), 1 => Just(NanoUsd::MAX)]
}

/// Valid and invalid deposits.
fn deposited() -> impl Strategy<Value = NanoUsd> {
    prop_oneof![9 => nanos(1..1_000), 1 => (-5..=0_i64).prop_map(NanoUsd::from_nanos)]
}

fn progress() -> impl Strategy<Value = Progress> {
    let tokens = || prop_oneof![19 => 0..1_000_u64, 1 => Just(u64::MAX)];
    (tokens(), tokens(), tokens(), nanos(0..700)).prop_map(|(prompt, cached, completion, cost)| Progress {
        usage: Usage::of(prompt, cached, completion),
        cost,
        upstream_cost: None,
    })
}

/// Times within the duration of a history, in steps so large that some are equal.
fn time() -> impl Strategy<Value = Timestamp> {
    (0..60_u64).prop_map(|seconds| START.plus(Duration::from_secs(seconds)))
}

/// The state of a store: everything that commands read and write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct World {
    /// The accounts there are.
    pub accounts: HashMap<AccountId, Account>,
    /// Keys of the accounts.
    pub keys: HashMap<(AccountId, KeyId), Key>,
    /// Groups of the accounts.
    pub groups: HashMap<(AccountId, GroupId), Group>,
    /// Holds, settlements and deposits of the accounts.
    pub records: HashMap<(AccountId, RecordId), Record>,
    /// Journals and counters of the accounts.
    pub trails: HashMap<AccountId, Trail>,
}

/// The journal and the counters of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trail {
    /// The entries, numbered from 1.
    pub journal: Vec<(GenerationId, Entry)>,
    /// The counters.
    pub counted: BTreeMap<(Day, Payer), Counts>,
}

impl World {
    /// Accounts without credit. The first key of each has no limit.
    pub fn new() -> Self {
        let mut world = Self::default();
        for a in 0..ACCOUNTS {
            world.accounts.insert(account(a), Account::default());
            for k in 0..KEYS {
                let limit = (k > 0).then_some(NanoUsd::from_nanos(600 * i64::from(k)));
                let budget = Budget { limit, ..Budget::default() };
                world.keys.insert((account(a), key(k)), Key { budget, ..Key::default() });
            }
        }
        world
    }

    /// Applies a command, as every store has to.
    pub fn apply(
        &mut self,
        account: AccountId,
        command: &Command,
        now: Timestamp,
    ) -> Result<Outcome, Refused> {
        let money = self.accounts.get(&account).copied().ok_or(Refused::UnknownKey)?;
        let (key_id, record_id) =
            (command.key().map(|k| (account, k)), command.record().map(|r| (account, r)));
        let key = key_id.and_then(|id| self.keys.get(&id)).cloned();
        let record = record_id.and_then(|id| self.records.get(&id)).cloned().unwrap_or_default();
        let before = record.clone();
        let group = |id| Ok::<_, Refused>(self.groups.get(&(account, id)).cloned());
        let state = State::load(money, key, record, group)?;
        let (after, outcome) = apply(state, command, now)?;
        if let (Some((_, RecordId::Generation(id))), Some(entry)) = (record_id, entry(&before, &after)) {
            let trail = self.trails.entry(account).or_default();
            let added = added(&before, &entry);
            let counts = trail.counted.entry((added.day, added.payer)).or_default();
            *counts = counts.plus(added.counts);
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

    /// Applies a change by the owner. A revoked key does not change.
    pub fn update(&mut self, account: AccountId, key: KeyId, patch: &KeyPatch) {
        if let Some(key) = self.keys.get_mut(&(account, key)).filter(|key| key.revoked_at.is_none()) {
            key.budget.limit = patch.bounds.limit.unwrap_or(key.budget.limit);
            key.expires_at = patch.expires_at.unwrap_or(key.expires_at);
        }
    }

    /// Revokes a key; a repetition changes nothing.
    pub fn revoke(&mut self, account: AccountId, key: KeyId, now: Timestamp) {
        if let Some(key) = self.keys.get_mut(&(account, key)) {
            key.revoked_at.get_or_insert(now);
        }
    }

    /// Sums of a key's open holds and of the charges of settlements.
    pub fn booked(&self, account: AccountId, key: KeyId) -> (NanoUsd, NanoUsd) {
        let (mut held, mut charged) = (0, 0);
        for ((of, _), record) in &self.records {
            match record {
                Record::Open(open) if (*of, open.payer.key) == (account, key) => held += open.amount.nanos(),
                Record::Closed(closed) if (*of, closed.payer.key) == (account, key) => {
                    charged += closed.charged.nanos();
                }
                Record::None | Record::Open(_) | Record::Closed(_) | Record::Deposited(_) => {}
            }
        }
        (NanoUsd::from_nanos(held), NanoUsd::from_nanos(charged))
    }

    /// Sum of an account's deposits.
    pub fn deposited(&self, account: AccountId) -> NanoUsd {
        let deposits = self.records.iter().map(|((of, _), record)| match record {
            Record::Deposited(amount) if *of == account => amount.nanos(),
            Record::None | Record::Open(_) | Record::Closed(_) | Record::Deposited(_) => 0,
        });
        NanoUsd::from_nanos(deposits.sum())
    }
}
