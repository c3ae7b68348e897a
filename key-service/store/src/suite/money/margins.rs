//! Margins: sums of days with the cost to the operator, apart by model and by group.

use std::{
    collections::{BTreeMap, HashMap},
    ops::RangeInclusive,
    time::Duration,
};

use shared::{
    ids::{AccountId, GenerationId, GroupId, KeyId},
    money::NanoUsd,
    tokens::Usage,
};

use crate::{
    store::{JournalEntry, Ledger as _, Store},
    suite::{Subject, act, after, hold, make_key, nanos, new_group, open_account_with, tick},
};
use domain::{
    key::KeyPatch,
    ledger::{
        Command, Entry, NewHold, Payer, Progress, Record,
        histories::{START, generation},
    },
    usage::{self, COUNTED, Day, Margin, Sums},
};

fn progress(cost: i64, upstream_cost: Option<i64>) -> Progress {
    let usage = Usage::of(10, 4, cost.unsigned_abs());
    Progress { usage, cost: nanos(cost), upstream_cost: upstream_cost.map(nanos), course: None }
}

/// A hold like another, for a generation of model `other`.
pub(crate) fn with_model(command: &Command, other: &str) -> Command {
    let Command::Hold(hold) = command.clone() else { panic!("{command:?}") };
    Command::Hold(NewHold { model: other.to_owned(), ..hold })
}

fn bill(key: KeyId, n: u8, cost: i64, upstream_cost: Option<i64>) -> Command {
    let (model, total) = ("Model Flash".into(), progress(cost, upstream_cost));
    Command::Capture { key, generation: generation(n), model, total, chargeable: None, estimated: false }
}

fn report(key: KeyId, n: u8, cost: i64, upstream_cost: Option<i64>) -> Command {
    let (most, progress) = (nanos(0), progress(cost, upstream_cost));
    Command::Extend { key, generation: generation(n), most, progress, lease_ticks: 7 }
}

/// Adds up entries of some days, apart by a part of the payer.
fn sums<P: Ord>(
    entries: &[(GenerationId, Entry)],
    days: &RangeInclusive<Day>,
    part: impl Fn(&Payer) -> P,
) -> BTreeMap<P, Margin> {
    let (mut earlier, mut sums) = (HashMap::new(), BTreeMap::new());
    for (generation, entry) in entries {
        let before = earlier.insert(generation, Record::Closed(entry.settlement.clone()));
        let added = usage::added(&before.unwrap_or_default(), entry);
        if days.contains(&added.day) {
            let sum: &mut Margin = sums.entry(part(&added.payer)).or_default();
            *sum = sum.plus(added.counts.into());
        }
    }
    sums
}

/// Compares margins with the entries of the journal, which begin with the account. Where amounts may have come to the
/// bound of counters, nothing is compared: the order of additions then decides the sum.
pub(crate) async fn the_margins_are_those_of(
    store: &Store,
    account: AccountId,
    days: RangeInclusive<Day>,
    entries: &[(GenerationId, Entry)],
) {
    let size = |entry: &Entry| {
        let upstream_cost = entry.settlement.upstream_cost.unwrap_or_default();
        [entry.delta, entry.settlement.charged, upstream_cost].map(|n| u128::from(n.nanos().unsigned_abs()))
    };
    if entries.iter().flat_map(|(_, entry)| size(entry)).sum::<u128>() >= COUNTED.into() {
        return;
    }
    let models = store.margins_by_model(account, days.clone()).await.unwrap();
    assert_eq!(models, sums(entries, &days, |payer| payer.model.clone()));
    let groups = store.margins_by_group(account, days.clone()).await.unwrap();
    let mut expected = sums(entries, &days, |payer| payer.groups[0]);
    expected.retain(|group, margin| group.is_some() || *margin != Margin::default());
    assert_eq!(groups, expected);
    let mut of_days = BTreeMap::<Option<GroupId>, Sums>::new();
    for (_, group, sums) in store.spend_by_group(account, days).await.unwrap() {
        let all = of_days.entry(group).or_default();
        *all = all.plus(sums);
    }
    let of = |group: &Option<GroupId>| of_days.get(group).copied().unwrap_or_default();
    assert!(expected.iter().all(|(group, margin)| of(group) == margin.sums), "{of_days:?} are {expected:?}");
}

pub(crate) async fn margins_are_those_of_the_journal(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 10_000).await;
    let [mine, alone] = [make_key(store, account, 1, None).await, make_key(store, account, 2, None).await];
    let groups = [new_group(account, 1), new_group(account, 2)].map(|mut new| {
        new.most = 9;
        new
    });
    let [first, second] = [groups[0].group.id, groups[1].group.id];
    for new in groups {
        store.create_group(new, None, &act(START)).await.unwrap();
    }
    let to = |group| KeyPatch { group: Some(Some(group)), ..KeyPatch::default() };
    store.update_key(account, mine, to(first), &act(START)).await.unwrap();
    let held = (1..=4).map(|n| hold(mine, generation(n), 100, 7));
    let held = held.chain([hold(alone, generation(5), 100, 7), hold(alone, generation(6), 100, 7)]);
    let other = with_model(&hold(alone, generation(9), 100, 7), "Model Max");
    store.execute(account, held.chain([other]).collect(), START).await.unwrap();
    let commands = vec![
        report(mine, 3, 40, Some(30)),
        report(alone, 6, 50, None),
        bill(mine, 1, 50, Some(20)),
        bill(mine, 2, 40, None),
        bill(alone, 5, 60, Some(70)),
        bill(alone, 9, 70, None),
    ];
    store.execute(account, commands, after(1)).await.unwrap();
    // The group that was there when the hold was opened pays.
    store.update_key(account, mine, to(second), &act(after(2))).await.unwrap();
    let commands = vec![
        bill(mine, 4, 10, Some(4)),
        hold(mine, generation(7), 100, 7),
        bill(mine, 7, 15, Some(5)),
        // Its hold is lost.
        bill(mine, 8, 5, Some(5)),
    ];
    store.execute(account, commands, after(3)).await.unwrap();
    tick(store, account, 7).await;
    let expire = |key, n| Command::Expire { key, generation: generation(n) };
    store.execute(account, vec![expire(mine, 3), expire(alone, 6)], after(30)).await.unwrap();
    subject.interrupt().await;
    let store = subject.store();
    // One correction gives back more than it bills, the other bills a cost that was not known.
    let next = START.plus(Duration::from_hours(24));
    store
        .execute(account, vec![bill(mine, 3, 20, Some(9)), bill(alone, 6, 99, Some(1))], next)
        .await
        .unwrap();

    let entries = store.journal(account, 0, 99).await.unwrap().entries;
    let entries: Vec<_> =
        entries.into_iter().map(|JournalEntry { generation, entry, .. }| (generation, entry)).collect();
    assert_eq!(entries.len(), 11);
    let (today, tomorrow) = (Day::of(START), Day::of(next));
    for days in [today..=today, tomorrow..=tomorrow, today..=tomorrow] {
        the_margins_are_those_of(store, account, days, &entries).await;
    }
    let groups = store.margins_by_group(account, today..=tomorrow).await.unwrap();
    let margin = |group| groups.get(&group).and_then(|margin: &Margin| margin.amount()).map(NanoUsd::nanos);
    assert_eq!([margin(Some(first)), margin(Some(second)), margin(None)], [Some(47), Some(10), Some(88)]);

    let of_all = store.usage(account, today..=tomorrow, None).await.unwrap();
    let of_both = store.usage(account, today..=tomorrow, Some(&[alone, mine])).await.unwrap();
    assert_eq!(of_both, of_all);
    assert_eq!(store.usage(account, today..=tomorrow, Some(&[])).await.unwrap(), []);
}
