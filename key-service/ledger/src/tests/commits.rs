//! How many records a bill compares and writes, which is most of what it costs.

use domain::ledger::{
    Account, Command, Group, Key, NewHold, Progress,
    histories::{generation, new_hold},
};
use records::{Commit, Revision, Write};
use shared::{
    generation::{ModelApi, Origin},
    ids::RequestId,
    money::NanoUsd,
};

use super::{KEPT, START, account, group, key};
use crate::{
    batch::{Batch, Decided, commands::Commands},
    copies::{Copies, Slot, TheAccount},
    names,
    stored::{AccountRecord, Balance},
};

/// Copies of an account with a key, which is in a group with a parent or in none.
fn copies(is_grouped: bool) -> Copies {
    let mut copies = Copies::default();
    let money = Account { credit: NanoUsd::from_usd(1), ..Account::default() };
    copies.keep(Slot::Account, None);
    copies.set_account(&TheAccount, Some(AccountRecord { money, ..AccountRecord::default() }));
    let of = Key { group: is_grouped.then(|| group(1)), ..Key::default() };
    copies.keep(Slot::Key(key(1)), None);
    copies.set_key(&key(1), Some(Balance { of, last_entry: 0 }));
    for (n, parent) in [(0, None), (1, Some(group(0)))] {
        copies.keep(Slot::Group(group(n)), None);
        copies
            .set_group(&group(n), Some(Balance { of: Group { parent, ..Group::default() }, last_entry: 0 }));
    }
    copies.settle(Revision([1; 8]));
    copies
}

/// Decides commands as if every record that is not copied were absent, and returns what is committed.
fn committed(copies: &mut Copies, commands: &[Command]) -> Commit {
    loop {
        let calls = [Commands { all: commands, now: START }];
        match Batch::new(copies, account(1), KEPT).decide(&calls) {
            Decided::Missing(slots) => slots.into_iter().for_each(|slot| copies.keep(slot, None)),
            Decided::Outcomes(outcomes, effects) => {
                assert!(outcomes.iter().flatten().all(Result::is_ok), "{outcomes:?}");
                let commit = effects.commit(copies, Revision([2; 8]), KEPT);
                copies.settle(Revision([2; 8]));
                return commit;
            }
        }
    }
}

/// The sets of the records that a bill writes, and the number of records that it compares.
fn bill(copies: &mut Copies, n: u8, user: Option<&str>) -> (Vec<u8>, usize) {
    let (key, generation, cost) = (key(1), generation(n), NanoUsd::from_nanos(5));
    let request = RequestId::from_slice(generation.as_bytes());
    let origin = Origin { api: ModelApi::Chat, stream: false, user: user.map(str::to_owned), request };
    let new = new_hold(key, generation, cost);
    let hold = Command::Hold(NewHold { origin: Some(origin.into()), ..new });
    committed(copies, &[hold]);
    let (model, total) = ("Model Flash".into(), Progress { cost, ..Progress::default() });
    let capture = Command::Capture { key, generation, model, total, chargeable: None, estimated: false };
    let Commit { guards, writes } = committed(copies, &[capture]);
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
        let mut copies = copies(is_grouped);
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
            let (mut tables, compared) = bill(&mut copies, n, user);
            let written = tables.len();
            tables.retain(|table| *table != names::PAYERS);
            assert_eq!(written - tables.len(), lists);
            assert_eq!(tables, expected, "{is_grouped} {user:?}");
            // The turn is compared too.
            assert_eq!(compared, expected.len() + 1 + lists, "{is_grouped} {user:?}");
        }
    }
}
