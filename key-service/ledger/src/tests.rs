//! Compares the ledger on top of records with the model. Every history must have the same outcomes and leave the same
//! books, with one process or several, and even if answers are lost.

mod clocks;
mod commits;
mod copies;
mod durability;
mod measure;
mod rivals;

use std::{collections::BTreeMap, slice, sync::Arc};

use domain::{
    event::Actor,
    ledger::{
        Account, Command, Ending, Key, Outcome, PaidTo, Record as GenerationRecord, RecordId, Told,
        histories::{
            ACCOUNTS, GROUPS, KEYS, LONGEST_HISTORY, START, Step, World, account, deposit, group, history,
            key, new_hold, of_history,
        },
    },
    usage::{self, GroupDay, Margin, UserDay},
};
use futures_util::FutureExt;
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use records::{
    Answer, Commit, Failure, Index, Log, Order, Question, Record, Records, Revision, Write,
    maps::{Fault, Maps},
    redis::Redis,
    servers::{RedisServer, settings},
    sqlite::Sqlite,
};
use shared::{
    clock::{Clock, System},
    ids::{AccountId, GenerationId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

use crate::{
    batch::Outcomes,
    error::StoreError,
    kept::{EVENTS_KEPT, EventBounds, Retention},
    lanes::{change::Change, lane::Lanes, turn::ATTEMPTS_WITHOUT_TURN},
    names::{self, PayerName, RecordName},
    stored::{AccountRecord, EntryRecord},
    view::{FORM, Stored, reading::SpaceReader},
};

const KEPT: Retention = Retention {
    journal_entries: 1_000_000,
    events: EventBounds::with_life(EVENTS_KEPT),
    expired: LONGEST_HISTORY,
    usage_days: None,
};

/// A clock that stands still, so that calls are decided at the times in the histories.
struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        START
    }

    fn random(&self, bytes: &mut [u8]) {
        System.random(bytes);
    }
}

/// Several processes that use one backend, and the model of what they should have done.
struct Installation {
    records: Arc<dyn Records>,
    processes: Vec<Lanes>,
    model: World,
    now: Timestamp,
}

impl Installation {
    async fn new(records: Arc<dyn Records>, count: usize) -> Self {
        let process = || Lanes::new(Arc::clone(&records), Arc::new(Still), KEPT);
        let processes = (0..count).map(|_| process()).collect();
        let installation = Self { processes, records, model: World::new(), now: START };
        for number in 0..ACCOUNTS {
            installation.adopt(account(number), 0, &[]).await;
        }
        installation
    }

    /// Writes the model's account, keys and groups with this process, and reports the thresholds in `passed`.
    async fn adopt(&self, account: AccountId, process: usize, passed: &[Told]) {
        let (model, ledger) = (&self.model, &self.processes[process]);
        let change = |change: &mut Change<'_>| {
            let expected = model.accounts[&account];
            match change.account().unwrap() {
                None => change.set_account(expected),
                Some(found) => change.set_account(Account { standing: expected.standing, ..found }),
            }
            for id in (0..KEYS).map(key) {
                change.key(id).unwrap();
                change.set_key(id, model.keys[&(account, id)].clone());
            }
            for id in (0..GROUPS).map(group) {
                change.group(id).unwrap();
                change.set_group(id, model.groups[&(account, id)].clone());
            }
            change.tell(passed.to_vec());
            Ok(())
        };
        ledger.change::<_, StoreError>(account, change).await.unwrap();
    }

    /// Takes a step in this process and in the model.
    async fn take(&mut self, step: &Step, process: usize) {
        let now = self.now;
        match step {
            Step::Execute(account, commands) => {
                let expected = self.model.execute(*account, commands, now);
                let outcomes = self.processes[process].execute(*account, commands.clone(), now).await;
                assert_eq!(outcomes, Ok(expected), "{commands:?}");
            }
            Step::Clock(clock) => self.now = clock.after(now),
            Step::Update(account, key, patch) => {
                let passed = self.model.update(*account, *key, patch, now);
                self.adopt(*account, process, &passed).await;
            }
            Step::Rotate(new) => {
                self.model.rotate(new, now);
                self.adopt(new.account, process, &[]).await;
            }
            Step::Revoke(account, key) => {
                self.model.revoke(*account, *key, now);
                self.adopt(*account, process, &[]).await;
            }
            Step::UpdateGroup(account, group, patch) => {
                let passed = self.model.update_group(*account, *group, patch, now);
                self.adopt(*account, process, &passed).await;
            }
            Step::Archive(account, group) => {
                self.model.archive(*account, *group, now);
                self.adopt(*account, process, &[]).await;
            }
            Step::Stand(account, act) => {
                self.model.stand(*account, act, now);
                self.adopt(*account, process, &[]).await;
            }
        }
    }

    /// Reads a stored record of an account.
    async fn kept<T: Stored>(&self, account: AccountId, name: RecordName<T>) -> Option<T> {
        SpaceReader(&*self.records).get(&names::space(account), name).await.unwrap()
    }

    async fn entries(&self, account: AccountId, index: Index) -> Vec<Vec<u8>> {
        let question =
            Question::Entries { index, from: Vec::new(), to: None, order: Order::Ascending, limit: 10_000 };
        match self.records.read(&names::space(account), vec![question]).await.unwrap().remove(0) {
            Answer::Entries(entries) => entries,
            answer => panic!("{answer:?}"),
        }
    }

    async fn values(&self, account: AccountId, log: Log) -> Vec<(u64, Vec<u8>)> {
        let question =
            Question::Values { log, from: 0, to: u64::MAX, order: Order::Ascending, limit: 10_000 };
        match self.records.read(&names::space(account), vec![question]).await.unwrap().remove(0) {
            Answer::Values(values) => values,
            answer => panic!("{answer:?}"),
        }
    }

    /// Checks that all stored records agree with the model.
    async fn is_as_the_model(&self) {
        for number in 0..ACCOUNTS {
            let account = account(number);
            self.money_is_as_the_model(account).await;
            self.generations_are_as_the_model(account).await;
            self.trail_is_as_the_model(account).await;
        }
    }

    async fn money_is_as_the_model(&self, account: AccountId) {
        let kept = self.kept(account, names::account()).await.unwrap();
        assert_eq!(kept.money, self.model.accounts[&account]);
        assert_eq!(self.kept(account, names::turn()).await, None, "nobody has the turn");
        let mut spenders = Vec::new();
        for id in (0..KEYS).map(key) {
            let balance = self.kept(account, names::key(id)).await.unwrap();
            assert_eq!(balance.of, self.model.keys[&(account, id)]);
            spenders.extend(names::spender(balance.of.budget.used, id));
        }
        for id in (0..GROUPS).map(group) {
            let balance = self.kept(account, names::group(id)).await.unwrap();
            assert_eq!(balance.of, self.model.groups[&(account, id)]);
        }
        spenders.sort();
        assert_eq!(self.entries(account, names::SPENDERS).await, spenders);
    }

    async fn generations_are_as_the_model(&self, account: AccountId) {
        let mut due = Vec::new();
        for ((of, id), record) in &self.model.records {
            if *of != account {
                continue;
            }
            let kept = match id {
                RecordId::Deposit(id) => self.kept(account, names::deposit(*id)).await,
                RecordId::Generation(id) => {
                    let record = self.kept(account, names::generation(*id)).await;
                    let expired = self.kept(account, names::expired(*id)).await;
                    assert!(record.is_none() || expired.is_none(), "{record:?}, {expired:?}");
                    let is_expired = matches!(
                        &expired,
                        Some(GenerationRecord::Closed(bill)) if bill.ending == Ending::Expired
                    );
                    assert_eq!(expired.is_some(), is_expired);
                    record.or(expired)
                }
            };
            assert_eq!(kept.as_ref(), Some(record).filter(|record| **record != GenerationRecord::None));
            if let (RecordId::Generation(id), GenerationRecord::Open(hold)) = (id, record) {
                due.push(names::due(*id, hold));
            }
        }
        due.sort();
        assert_eq!(self.entries(account, names::DUE).await, due);
    }

    async fn trail_is_as_the_model(&self, account: AccountId) {
        let told = self.model.events.get(&account).cloned().unwrap_or_default();
        let events = self.values(account, names::EVENTS).await;
        let expected = (1..).zip(&told).map(|(number, told)| {
            (number, [told.event.id.as_bytes(), told.event.to_json().as_bytes()].concat())
        });
        assert_eq!(events, expected.collect::<Vec<_>>());
        let Some(trail) = self.model.trails.get(&account) else { return };
        let expected =
            (1..).zip(&trail.journal).zip(trail.before()).map(|((number, (id, entry)), before)| {
                (number, shared::stored::write(&EntryRecord::of(*id, entry, before)))
            });
        assert_eq!(self.values(account, names::JOURNAL).await, expected.collect::<Vec<_>>());
        let mut sums = BTreeMap::<_, Margin>::new();
        for ((day, payer), counts) in &trail.counted {
            let name = PayerName::of(payer);
            let sum = self.kept(account, names::of_payer(*day, &name)).await.unwrap();
            assert_eq!(sum.of, *counts);
            let payers = self.kept(account, names::payers(payer.key)).await.unwrap();
            assert!(payers.finds(name.as_bytes(), *day));
            let sum = sums.entry((*day, payer.model.clone())).or_default();
            *sum = sum.plus(Margin::from(counts.of));
        }
        self.groups_and_users_are_those_of(account, &trail.journal).await;
        for ((day, model), expected) in sums {
            let kept = self.kept(account, names::of_model(day, &model)).await.unwrap();
            assert_eq!(kept.of.of, expected);
            let requests: u64 = kept.of.hours.iter().map(|(_, counts)| counts.requests).sum();
            assert_eq!(requests, expected.sums.requests, "the hours include every request");
        }
    }

    /// Checks that the sums of groups and users agree with the journal.
    async fn groups_and_users_are_those_of(
        &self,
        account: AccountId,
        entries: &[(GenerationId, domain::ledger::Entry)],
    ) {
        let (mut groups, mut users) = (BTreeMap::<_, GroupDay>::new(), BTreeMap::<_, UserDay>::new());
        let mut earlier = std::collections::HashMap::new();
        for (id, entry) in entries {
            let before = earlier.insert(id, GenerationRecord::Closed(entry.settlement.clone()));
            let usage::Added { payer, user, day, hour, counts } =
                usage::added(&before.unwrap_or_default(), entry);
            for (group, keys) in usage::counting_groups(payer.groups) {
                groups.entry((day, group)).or_default().add(&payer.model, keys, hour, counts);
            }
            if let Some(user) = user {
                users.entry((day, usage::part_of_user(user))).or_default().add(user, counts.into());
            }
        }
        for ((day, group), expected) in groups {
            assert_eq!(self.kept(account, names::of_group(day, group)).await.unwrap().of, expected);
        }
        for ((day, part), expected) in users {
            assert_eq!(self.kept(account, names::of_users(day, part)).await.unwrap().of, expected);
        }
    }
}

/// Returns the outcomes as if each payment and refund had already taken effect.
fn as_repeated(outcomes: Outcomes) -> Outcomes {
    let repeated = |outcome| match outcome {
        Ok(Outcome::Deposited { deposited, .. }) => Ok(Outcome::Deposited { deposited, is_new: false }),
        other => other,
    };
    outcomes.into_iter().map(repeated).collect()
}

fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

proptest! {
    #[test]
    fn every_history_has_the_outcomes_and_leaves_the_books_of_the_model(steps in history()) {
        run(async {
            let mut installation = Installation::new(Arc::new(Maps::default()), 1).await;
            for step in &steps {
                installation.take(step, 0).await;
            }
            installation.is_as_the_model().await;
        });
    }

    /// After another process has committed, a process's copies are stale. It then gets the current records from a
    /// conflict.
    #[test]
    fn processes_that_take_turns_at_an_account_decide_by_what_the_others_have_written(
        steps in vec((history(), 0..3_usize), 1..6),
    ) {
        run(async {
            let mut installation = Installation::new(Arc::new(Maps::default()), 3).await;
            for (steps, process) in &steps {
                for (n, step) in steps.iter().enumerate() {
                    installation.take(step, (process + n / 2) % 3).await;
                }
            }
            installation.is_as_the_model().await;
        });
    }

    /// If the answer to a commit is lost, the caller sends the command again. The process then finds that the command
    /// has already taken effect.
    #[test]
    fn a_command_whose_answer_is_lost_takes_effect_once(
        steps in history(),
        lost in vec(0..4_u8, 1..200),
    ) {
        run(async {
            let maps = Arc::new(Maps::default());
            let mut installation = Installation::new(Arc::clone(&maps) as Arc<dyn Records>, 2).await;
            let mut lost = lost.iter().cycle();
            for step in &steps {
                let Step::Execute(account, commands) = step else {
                    installation.take(step, 0).await;
                    continue;
                };
                for command in commands {
                    let now = installation.now;
                    let expected = installation.model.execute(*account, slice::from_ref(command), now);
                    let faults = std::iter::repeat_with(|| Fault::Lost(Failure::Unknown("lost".into())));
                    maps.next_calls(faults.take(usize::from(*lost.next().unwrap() / 2)));
                    let mut attempts = 0;
                    let outcomes = loop {
                        attempts += 1;
                        let process = &installation.processes[attempts % 2];
                        match process.execute(*account, vec![command.clone()], now).await {
                            Ok(outcomes) => break outcomes,
                            Err(Failure::Unknown(_)) if attempts < 10 => {}
                            Err(failure) => panic!("{failure}"),
                        }
                    };
                    // A command that took effect before its answer was lost is not new when it is sent again.
                    prop_assert_eq!(as_repeated(outcomes), as_repeated(expected), "{:?}", command);
                }
            }
            installation.is_as_the_model().await;
            Ok(())
        })?;
    }
}

/// The bill of an expiry is stored separately, and a late capture replaces it.
#[test]
fn a_late_capture_leaves_no_bill_of_the_expiry() {
    let (key, generation, amount) = (key(0), of_history(0), NanoUsd::from_nanos(100));
    let (note, actor) = (String::new(), Actor::System);
    let deposit =
        Command::Deposit { id: deposit(0), amount, note, payment_id: None, to: PaidTo::Account, actor };
    let ticks = (0..7).map(|tick| Command::Tick { seen: Some(tick) });
    let end = [Command::Expire { key, generation }, durability::capture(generation)];
    let commands = [deposit, durability::hold(generation)].into_iter().chain(ticks).chain(end);
    run(async {
        let mut installation = Installation::new(Arc::new(Maps::default()), 1).await;
        for command in commands {
            installation.take(&Step::Execute(account(0), vec![command]), 0).await;
            installation.is_as_the_model().await;
        }
        let records = &installation.model.records;
        let kept = &records[&(account(0), RecordId::Generation(generation))];
        assert!(
            matches!(kept, GenerationRecord::Closed(bill) if bill.ending == Ending::Captured),
            "{kept:?}"
        );
    });
}

/// A command finds the groups of its generation in the generation's record. An earlier command of the same batch may
/// remove this record.
#[test]
fn a_hold_behind_a_release_of_its_generation_reads_its_own_groups() {
    let (generation, amount) = (of_history(0), NanoUsd::from_nanos(100));
    let (note, actor) = (String::new(), Actor::System);
    let deposit =
        Command::Deposit { id: deposit(0), amount, note, payment_id: None, to: PaidTo::Account, actor };
    let release = Command::Release { key: key(0), generation };
    let hold = Command::Hold(new_hold(key(1), generation, amount));
    run(async {
        let mut installation = Installation::new(Arc::new(Maps::default()), 2).await;
        let before = vec![deposit, durability::hold(generation)];
        installation.take(&Step::Execute(account(0), before), 0).await;
        assert!(installation.model.keys[&(account(0), key(1))].group.is_some());
        installation.take(&Step::Execute(account(0), vec![release, hold]), 1).await;
        installation.is_as_the_model().await;
    });
}

/// Runs the histories on Redis and on SQLite, with two processes each. All histories use the same Redis.
#[test]
fn histories_over_redis_and_sqlite_are_those_of_the_model() {
    let server = RedisServer::shared();
    let mut runner = TestRunner::new(ProptestConfig::with_cases(48));
    let checked = runner.run(&history(), |steps| {
        run(async {
            let folder = tempfile::tempdir().unwrap();
            let redis = Redis::open(&settings(&server.url(), &folder), Arc::new(System)).await.unwrap();
            let sqlite: Arc<dyn Records> = Arc::new(Sqlite::in_memory().unwrap());
            for records in [Arc::new(redis), sqlite] {
                let mut installation = Installation::new(records, 2).await;
                for (n, step) in steps.iter().enumerate() {
                    installation.take(step, n / 2 % 2).await;
                }
                installation.is_as_the_model().await;
            }
        });
        Ok(())
    });
    checked.unwrap();
}

/// Many callers in several processes spend from one key's limit at the same time.
#[tokio::test]
async fn no_limit_is_passed_by_processes_that_race_for_it() {
    const PROCESSES: usize = 4;
    const CALLS: u64 = 400;
    let records = Arc::new(Maps::default());
    let process = || Arc::new(Lanes::new(Arc::clone(&records) as Arc<dyn Records>, Arc::new(System), KEPT));
    let processes: Vec<_> = (0..PROCESSES).map(|_| process()).collect();
    let (account, key, one) = (account(0), key(0), NanoUsd::from_nanos(10));
    let limit = NanoUsd::from_nanos(1_000);
    let money = domain::ledger::Account { credit: NanoUsd::from_usd(1), ..Default::default() };
    let made = processes[0].change::<_, StoreError>(account, |change| {
        let mut of = Key::default();
        of.budget.limit = Some(limit);
        change.account().unwrap();
        change.key(key).unwrap();
        change.set_account(money);
        change.set_key(key, of);
        Ok(())
    });
    made.await.unwrap();
    let calls = (0..CALLS).map(|n| {
        let ledger = Arc::clone(&processes[usize::try_from(n).unwrap() % PROCESSES]);
        tokio::spawn(async move { spend(&ledger, (account, key), one).await })
    });
    let mut charged = 0;
    for call in calls.collect::<Vec<_>>() {
        charged += i64::from(call.await.unwrap()) * one.nanos();
    }
    let installation = Installation { records, processes: Vec::new(), model: World::new(), now: START };
    let of = installation.kept(account, names::key(key)).await.unwrap().of;
    assert_eq!((of.budget.used.nanos(), of.budget.held), (charged, NanoUsd::ZERO));
    assert_eq!(charged, limit.nanos(), "some were refused only while others held the rest");
    let kept = installation.kept(account, names::account()).await.unwrap();
    assert_eq!(kept.money.credit.nanos(), NanoUsd::from_usd(1).nanos() - charged);
    let journal = installation.values(account, names::JOURNAL).await;
    assert!(journal.iter().map(|(number, _)| *number).eq(1..=kept.entries));
    assert_eq!(kept.entries, 100);
    assert_eq!(installation.kept(account, names::turn()).await, None);
}

#[tokio::test]
async fn a_change_that_is_refused_after_lost_commits_gives_the_turn_back() {
    let records: Arc<dyn Records> = Arc::new(Maps::default());
    let installation = Installation::new(Arc::clone(&records), 1).await;
    let (account, space) = (account(0), names::space(account(0)));
    let mut decided = 0;
    let refused = installation.processes[0].change(account, |change| {
        let money = change.account().unwrap().unwrap_or_default();
        decided += 1;
        if decided <= 2 * ATTEMPTS_WITHOUT_TURN {
            // Another process writes the account before the refusal is confirmed.
            let value = AccountRecord { money, ..AccountRecord::default() };
            let record =
                Record::of(Revision(decided.to_be_bytes().repeat(2).try_into().unwrap()), FORM, &value);
            let put =
                Commit { guards: Vec::new(), writes: vec![Write::Put(names::account().into(), record)] };
            records.commit(&space, put).now_or_never().unwrap().unwrap();
        }
        Err::<(), _>(StoreError::Busy("refused"))
    });
    assert_eq!(refused.await, Err(StoreError::Busy("refused")));
    assert_eq!(decided, 2 * ATTEMPTS_WITHOUT_TURN + 1);
    assert_eq!(installation.kept(account, names::turn()).await, None);
}

/// Holds and captures the amount. Returns whether both succeeded.
async fn spend(ledger: &Lanes, (account, key): (AccountId, KeyId), one: NanoUsd) -> bool {
    use domain::ledger::{Outcome, Progress, Refused};
    let generation = GenerationId::generate(&System);
    loop {
        let now = System.now();
        let hold = Command::Hold(new_hold(key, generation, one));
        match ledger.execute(account, vec![hold], now).await.unwrap().remove(0) {
            Ok(Outcome::Held { .. }) => break,
            Err(Refused::Reserved) => tokio::task::yield_now().await,
            Err(Refused::LimitReached { .. }) => return false,
            outcome => panic!("{outcome:?}"),
        }
    }
    let (model, total) = ("Model Flash".into(), Progress { cost: one, ..Progress::default() });
    let capture = Command::Capture { key, generation, model, total, chargeable: None, estimated: false };
    let billed = ledger.execute(account, vec![capture], System.now()).await.unwrap().remove(0);
    matches!(billed, Ok(Outcome::Captured(_)))
}
