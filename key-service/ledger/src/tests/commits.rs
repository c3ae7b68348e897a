//! Counts the records that a bill compares and writes, which account for most of its cost.

use domain::ledger::{
    Account, Command, Group, Key, NewHold, Progress,
    histories::{generation, new_hold},
};
use domain::usage::Day;
use records::{Commit, Revision, Write};
use shared::{
    generation::{ModelApi, Origin},
    ids::RequestId,
    money::NanoUsd,
};

use super::{KEPT, START, account, group, key};
use crate::{
    batch::{Batch, commands::Commands},
    names,
    stored::{AccountRecord, Balance},
    view::View,
};

/// Creates a view with copies of an account and a key, which is in a group with a parent or in no group.
fn view(is_grouped: bool) -> View {
    let mut view = View::of(&names::space(account(1)));
    let money = Account { credit: NanoUsd::from_usd(1), ..Account::default() };
    view.keep(names::account().into(), None);
    view.put(&names::account(), AccountRecord { money, ..AccountRecord::default() });
    let of = Key { group: is_grouped.then(|| group(1)), ..Key::default() };
    view.keep(names::key(key(1)).into(), None);
    view.put(&names::key(key(1)), Balance { of, last_entry: 0 });
    for (n, parent) in [(0, None), (1, Some(group(0)))] {
        view.keep(names::group(group(n)).into(), None);
        let of = Group { parent, ..Group::default() };
        view.put(&names::group(group(n)), Balance { of, last_entry: 0 });
    }
    view.settle(Revision([1; 8]));
    view
}

/// Decides commands as if every record without a copy were absent, and returns the commit.
fn committed(view: &mut View, commands: &[Command]) -> Commit {
    loop {
        let calls = [Commands { all: commands, now: START }];
        let Some((outcomes, effects)) = Batch::new(view, account(1), KEPT).decide(&calls) else {
            view.take_missing().into_iter().for_each(|name| view.keep(name, None));
            continue;
        };
        assert!(outcomes.iter().flatten().all(Result::is_ok), "{outcomes:?}");
        let commit = effects.commit(view, Revision([2; 8]), KEPT);
        view.settle(Revision([2; 8]));
        return commit;
    }
}

/// Returns the sets of the records that a bill writes, and the number of records that it compares.
fn bill(view: &mut View, n: u8, user: Option<&str>) -> (Vec<u8>, usize) {
    let (key, generation, cost) = (key(1), generation(n), NanoUsd::from_nanos(5));
    let request = RequestId::from_slice(generation.as_bytes());
    let origin = Origin { api: ModelApi::Chat, stream: false, user: user.map(str::to_owned), request };
    let new = new_hold(key, generation, cost);
    let hold = Command::Hold(NewHold { origin: Some(origin.into()), ..new });
    committed(view, &[hold]);
    let (model, total) = ("Model Flash".into(), Progress { cost, ..Progress::default() });
    let capture = Command::Capture { key, generation, model, total, chargeable: None, estimated: false };
    let Commit { guards, writes } = committed(view, &[capture]);
    let mut tables: Vec<u8> = writes
        .iter()
        .filter_map(|write| match write {
            Write::Put(name, _) => Some(name.set.table),
            Write::Append { .. }
            | Write::Trim { .. }
            | Write::Remove(_)
            | Write::Drop(_)
            | Write::Enter(..)
            | Write::Leave(..) => None,
        })
        .collect();
    tables.sort_unstable();
    (tables, guards.len())
}

#[test]
fn a_bill_writes_two_sums_one_for_each_group_and_one_for_a_user_that_is_named() {
    for (is_grouped, user, groups, of_user) in
        [(false, None, 0, 0), (false, Some("ann"), 0, 1), (true, None, 2, 0), (true, Some("ann"), 2, 1)]
    {
        let mut view = view(is_grouped);
        // The first bill of a payer and day lists the payer.
        let expected = [
            vec![names::MONEY; 2 + groups],
            vec![names::GENERATIONS],
            vec![names::SUMS, names::SPEND],
            vec![names::GROUP_SPEND; groups],
            vec![names::USERS; of_user],
        ];
        let mut expected = expected.concat();
        expected.sort_unstable();
        for (n, lists) in [(1, 1), (2, 0), (3, 0)] {
            let (mut tables, compared) = bill(&mut view, n, user);
            let written = tables.len();
            tables.retain(|table| *table != names::PAYERS);
            assert_eq!(written - tables.len(), lists);
            assert_eq!(tables, expected, "{is_grouped} {user:?}");
            // The turn is guarded too.
            assert_eq!(compared, expected.len() + 1 + lists, "{is_grouped} {user:?}");
        }
    }
}

#[test]
fn too_many_copies_are_dropped_except_open_holds() {
    let mut view = view(true);
    committed(&mut view, &[Command::Hold(new_hold(key(1), generation(1), NanoUsd::from_nanos(5)))]);
    let all = view.len();
    view.shrink(all, Day::of(START));
    assert_eq!(view.len(), all);
    assert!(view.has_copy(&names::account()));
    view.shrink(all - 1, Day::of(START));
    assert_eq!(view.len(), 1);
    assert!(view.has_copy(&names::generation(generation(1))));
    view.shrink(0, Day::of(START));
    assert_eq!(view.len(), 0);
}

#[test]
fn a_bill_leaves_no_copy_of_its_hold_and_a_refused_change_none_of_what_few_read() {
    let mut view = view(false);
    bill(&mut view, 1, None);
    assert!(!view.has_copy(&names::generation(generation(1))));
    assert!(!view.has_copy(&names::payers(key(1))));
    assert!(view.has_copy(&names::key(key(1))));
    let profile = names::nouns::key_profile(key(1));
    view.keep(profile.clone().into(), None);
    view.keep(names::house().into(), None);
    assert!(view.get(&profile).unwrap().is_none());
    view.refuse();
    assert!(!view.has_copy(&profile) && !view.has_copy(&names::house()));
}
