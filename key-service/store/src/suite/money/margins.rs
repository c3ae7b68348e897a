//! Cases about daily and hourly sums by model, group, user and key.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::RangeInclusive,
    time::Duration,
};

use shared::{
    ids::{AccountId, GenerationId, GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
    tokens::Usage,
};

use crate::{
    store::{AccountDay, JournalEntry, Ledger as _, OtherSums, Store, UsageLine},
    suite::{Subject, act, after, hold, make_key, nanos, new_group, open_account_with, tick},
};
use domain::{
    key::KeyPatch,
    ledger::{
        Command, Entry, NewHold, Payer, Progress, Record,
        histories::{START, generation, new_hold},
    },
    usage::{self, Counts, Day, DayTotal, GroupDay, Margin, UserDay, counting_groups, part_of_user},
};

fn progress(cost: i64, upstream_cost: Option<i64>) -> Progress {
    let usage = Usage::of(10, 4, cost.unsigned_abs());
    Progress { usage, cost: nanos(cost), upstream_cost: upstream_cost.map(nanos), course: None }
}

fn bill(key: KeyId, n: u8, cost: i64, upstream_cost: Option<i64>) -> Command {
    let (model, total) = ("Model Flash".into(), progress(cost, upstream_cost));
    Command::Capture { key, generation: generation(n), model, total, chargeable: None, estimated: false }
}

fn report(key: KeyId, n: u8, cost: i64, upstream_cost: Option<i64>) -> Command {
    let (most, progress) = (nanos(0), progress(cost, upstream_cost));
    Command::Extend { key, generation: generation(n), most, progress, lease_ticks: 7 }
}

/// What entries should add to an account's daily sums.
#[derive(Default)]
struct Expected {
    models: BTreeMap<(Day, String), DayTotal<Margin>>,
    groups: BTreeMap<(Day, GroupId), GroupDay>,
    users: BTreeMap<(Day, u8), UserDay>,
    payers: BTreeMap<(Day, Payer), DayTotal<Counts>>,
}

impl Expected {
    fn of(entries: &[(GenerationId, Entry)]) -> Self {
        let (mut earlier, mut expected) = (HashMap::new(), Self::default());
        for (generation, entry) in entries {
            let before = earlier.insert(generation, Record::Closed(entry.settlement.clone()));
            expected.add(usage::added(&before.unwrap_or_default(), entry));
        }
        expected
    }

    fn add(&mut self, usage::Added { payer, user, day, hour, counts }: usage::Added) {
        for (group, keys) in counting_groups(payer.groups) {
            self.groups.entry((day, group)).or_default().add(&payer.model, keys, hour, counts);
        }
        self.models.entry((day, payer.model.clone())).or_default().add(hour, counts);
        self.payers.entry((day, payer)).or_default().add(hour, counts);
        if let Some(user) = user {
            self.users.entry((day, part_of_user(&user))).or_default().add(&user, counts.into());
        }
    }
}

/// Compares the daily sums with the entries of a complete journal: by model, group, user and key, in total and by hour.
pub(crate) async fn the_sums_are_those_of(
    store: &Store,
    account: AccountId,
    days: RangeInclusive<Day>,
    entries: &[(GenerationId, Entry)],
) {
    let Expected { models, groups, users, payers } = Expected::of(entries);
    let ids: Vec<GroupId> =
        groups.keys().map(|(_, group)| *group).collect::<BTreeSet<_>>().into_iter().collect();
    let others = OtherSums { groups: &ids, users: true };
    let found = store.account_days(account, days.clone(), others).await.unwrap();
    assert!(
        found.iter().map(|of| of.day).eq((days.start().number()..=days.end().number()).map(Day::from_number))
    );
    for AccountDay { day, models: of_models, groups: of_groups, users: of_users } in found {
        let expected = models.iter().filter(|((of, _), _)| *of == day);
        assert!(
            of_models.iter().eq(expected.map(|((_, model), total)| (model, total))),
            "{day}: {of_models:?}"
        );
        for (id, of_group) in ids.iter().zip(of_groups) {
            assert_eq!(of_group, groups.get(&(day, *id)).cloned().unwrap_or_default(), "{day}, {id}");
        }
        for (part, of_part) in (0..).zip(of_users) {
            assert_eq!(of_part, users.get(&(day, part)).cloned().unwrap_or_default(), "{day}, {part}");
        }
    }
    for id in ids {
        for (day, of_group) in store.group_days(account, days.clone(), id).await.unwrap() {
            assert_eq!(of_group, groups.get(&(day, id)).cloned().unwrap_or_default(), "{day}, {id}");
        }
    }
    let keys: BTreeSet<KeyId> = payers.keys().map(|(_, payer)| payer.key).collect();
    for key in keys {
        let lines = store.usage(account, days.clone(), Some(&[key])).await.unwrap();
        let expected = payers.iter().filter(|((day, payer), _)| payer.key == key && days.contains(day));
        let found = lines.into_iter().map(|UsageLine { day, payer, counts }| ((day, payer), counts));
        assert!(found.eq(expected.map(|(of, counts)| (of.clone(), counts.clone()))), "{key}");
    }
}

/// Two keys with bills: one moves between two groups, the other has no group.
struct BilledKeys {
    account: AccountId,
    moving: KeyId,
    alone: KeyId,
    groups: [GroupId; 2],
}

impl BilledKeys {
    /// Creates an account with both keys and both groups. The key that moves begins in the first group.
    async fn open(store: &Store) -> Self {
        let account = open_account_with(store, 1, 10_000).await;
        let (moving, alone) =
            (make_key(store, account, 1, None).await, make_key(store, account, 2, None).await);
        let groups = [new_group(account, 1), new_group(account, 2)];
        let ids = groups.each_ref().map(|new| new.group.id);
        for new in groups {
            store.create_group(new, None, &act(START)).await.unwrap();
        }
        let keys = Self { account, moving, alone, groups: ids };
        keys.move_to(store, ids[0], START).await;
        keys
    }

    async fn move_to(&self, store: &Store, group: GroupId, at: Timestamp) {
        let patch = KeyPatch { group: Some(Some(group)), ..KeyPatch::default() };
        store.update_key(self.account, self.moving, patch, &act(at)).await.unwrap();
    }

    /// Bills requests before and after the move, and lets two holds expire.
    async fn spend(&self, store: &Store) {
        let Self { account, moving, alone, groups: [_, second] } = *self;
        let held = (1..=4).map(|n| hold(moving, generation(n), 100, 7));
        let held = held.chain([hold(alone, generation(5), 100, 7), hold(alone, generation(6), 100, 7)]);
        let other = NewHold { model: "Model Max".into(), ..new_hold(alone, generation(9), nanos(100)) };
        let held = held.chain([Command::Hold(other)]);
        store.execute(account, held.collect(), START).await.unwrap();
        let commands = vec![
            report(moving, 3, 40, Some(30)),
            report(alone, 6, 50, None),
            bill(moving, 1, 50, Some(20)),
            bill(moving, 2, 40, None),
            bill(alone, 5, 60, Some(70)),
            bill(alone, 9, 70, None),
        ];
        store.execute(account, commands, after(1)).await.unwrap();
        // The group that the key was in when the hold was opened pays.
        self.move_to(store, second, after(2)).await;
        let commands = vec![
            bill(moving, 4, 10, Some(4)),
            hold(moving, generation(7), 100, 7),
            bill(moving, 7, 15, Some(5)),
            // The hold of this generation expires.
            bill(moving, 8, 5, Some(5)),
        ];
        store.execute(account, commands, after(3)).await.unwrap();
        tick(store, account, 7).await;
        let expire = |key, n| Command::Expire { key, generation: generation(n) };
        store.execute(account, vec![expire(moving, 3), expire(alone, 6)], after(30)).await.unwrap();
    }

    /// Captures the expired generations late. One correction returns more than it bills; the other bills a cost that
    /// was not known.
    async fn correct(&self, store: &Store, at: Timestamp) {
        let corrections = vec![bill(self.moving, 3, 20, Some(9)), bill(self.alone, 6, 99, Some(1))];
        store.execute(self.account, corrections, at).await.unwrap();
    }

    /// Reads the margins of the keys in each group, and of the keys in no group.
    async fn margins(&self, store: &Store, days: RangeInclusive<Day>) -> [Margin; 3] {
        let others = OtherSums { groups: &self.groups, users: false };
        let (mut of_groups, mut all) = ([Margin::default(); 2], Margin::default());
        let found = store.account_days(self.account, days, others).await.unwrap();
        for AccountDay { models, groups, .. } in found {
            all = models.values().fold(all, |all, total| all.plus(total.of));
            for (margin, group) in of_groups.iter_mut().zip(&groups) {
                *margin = group.own().fold(*margin, |all, part| all.plus(part.total.of));
            }
        }
        let [of_first, of_second] = of_groups;
        [of_first, of_second, all.less(of_first).less(of_second)]
    }
}

pub(crate) async fn margins_are_those_of_the_journal(subject: &mut impl Subject) {
    let keys = BilledKeys::open(subject.store()).await;
    keys.spend(subject.store()).await;
    subject.interrupt().await;
    let (store, account) = (subject.store(), keys.account);
    let next = START.plus(Duration::from_hours(24));
    keys.correct(store, next).await;

    let entries = store.journal(account, 0, 99).await.unwrap().entries;
    let entries: Vec<_> =
        entries.into_iter().map(|JournalEntry { generation, entry, .. }| (generation, entry)).collect();
    assert_eq!(entries.len(), 11);
    let (today, tomorrow) = (Day::of(START), Day::of(next));
    for days in [today..=today, tomorrow..=tomorrow, today..=tomorrow] {
        the_sums_are_those_of(store, account, days, &entries).await;
    }
    let margins = keys.margins(store, today..=tomorrow).await;
    assert_eq!(margins.map(|margin| margin.amount().map(NanoUsd::nanos)), [Some(47), Some(10), Some(88)]);

    let of_all = store.usage(account, today..=tomorrow, None).await.unwrap();
    let of_both = store.usage(account, today..=tomorrow, Some(&[keys.alone, keys.moving])).await.unwrap();
    assert_eq!(of_both, of_all);
    assert_eq!(store.usage(account, today..=tomorrow, Some(&[])).await.unwrap(), []);
}

pub(crate) async fn sums_of_a_key_are_whole_however_many_models_it_uses(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 100_000).await;
    let [many, other] = [make_key(store, account, 1, None).await, make_key(store, account, 2, None).await];
    let of_model = |key: KeyId, n: u8| {
        let held = NewHold { model: format!("Model {n}"), ..new_hold(key, generation(n), nanos(5)) };
        [Command::Hold(held), bill(key, n, 5, None)]
    };
    store.execute(account, of_model(other, 255).into(), START).await.unwrap();
    let (next, mut all) = (START.plus(Duration::from_hours(24)), (1..=220_u8).collect::<Vec<_>>());
    let of_tomorrow = all.split_off(212);
    for (now, models) in [(START, all), (next, of_tomorrow)] {
        for some in models.chunks(20) {
            let commands = some.iter().flat_map(|n| of_model(many, *n)).collect();
            store.execute(account, commands, now).await.unwrap();
        }
    }
    let (today, tomorrow) = (Day::of(START), Day::of(next));
    for (days, expected) in [(today..=today, 212), (tomorrow..=tomorrow, 8), (today..=tomorrow, 220)] {
        let of_key = store.usage(account, days.clone(), Some(&[many])).await.unwrap();
        let mut lines = store.usage(account, days, None).await.unwrap();
        lines.retain(|line| line.payer.key == many);
        assert_eq!((of_key.len(), &of_key), (expected, &lines));
    }
    assert_eq!(store.audit(account).await.unwrap().unwrap().wrong, []);
}
