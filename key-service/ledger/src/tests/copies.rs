//! Checks that copies in a view belong to the right records, although the slot of a dropped copy is used again.

use std::collections::BTreeMap;

use domain::{ledger::histories::START, usage::Day};
use proptest::prelude::*;
use records::{Commit, Record, Revision, Write};

use super::account;
use crate::{
    names::{self, RecordName},
    stored::Told,
    view::{FORM, View, reading},
};

const NAMES: usize = 6;

/// What happens to a view. The numbers are those of names.
#[derive(Clone, Debug)]
enum Step {
    Read(usize),
    Look(usize),
    Put(usize),
    Remove(usize),
    Presume(usize),
    Forget(usize),
    Shrink(usize),
    Begin,
    Settle,
    Refuse,
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES;
    prop_oneof![
        4 => name().prop_map(Step::Read),
        4 => name().prop_map(Step::Look),
        4 => name().prop_map(Step::Put),
        1 => name().prop_map(Step::Remove),
        2 => name().prop_map(Step::Presume),
        1 => name().prop_map(Step::Forget),
        1 => name().prop_map(Step::Shrink),
        1 => Just(Step::Begin),
        3 => Just(Step::Settle),
        1 => Just(Step::Refuse),
    ]
}

/// Names records of which lanes keep copies, and records of which they keep none.
fn name(n: usize) -> RecordName<Told> {
    let of = [u8::try_from(n).unwrap()];
    if n.is_multiple_of(2) { names::told(&of) } else { RecordName::new(names::nouns::HOUSE, 0, of) }
}

/// A view, and what it should say.
struct Checked {
    view: View,
    stored: [Option<u64>; NAMES],
    /// Values after the change so far.
    next: BTreeMap<usize, Option<u64>>,
    /// Records that the change has read, in order.
    read: Vec<usize>,
    last: u64,
}

impl Checked {
    fn take(&mut self, step: &Step) {
        match *step {
            Step::Read(n) => {
                self.discard();
                self.view.begin();
                let record = self.stored[n].map(|event| Record::of(revision(event), FORM, &Told { event }));
                self.view.keep(name(n).into(), record);
            }
            Step::Look(n) => {
                self.touch(n);
                assert_eq!(self.view.found(&name(n)).is_ok(), self.view.has_copy(&name(n)));
            }
            Step::Put(n) => {
                self.last += 1;
                self.change(n, Some(self.last));
                self.view.put(&name(n), Told { event: self.last });
            }
            Step::Remove(n) => {
                self.change(n, None);
                self.view.remove(&name(n));
            }
            Step::Presume(n) => {
                if self.stored[n].is_none() {
                    let slot = self.view.find_new(&name(n));
                    self.touch(n);
                    let value = self.view.value_at(slot).ok().flatten().copied();
                    assert_eq!(value.as_ref(), self.view.peek(&name(n)));
                }
            }
            Step::Forget(n) => {
                self.discard();
                self.view.forget(&name(n));
                assert!(!self.view.has_copy(&name(n)));
            }
            Step::Shrink(most) => {
                if self.view.len() > most {
                    self.discard();
                }
                self.view.shrink(most, Day::of(START));
            }
            Step::Begin => {
                self.discard();
                self.view.begin();
            }
            Step::Settle => self.settle(),
            Step::Refuse => {
                self.discard();
                self.view.refuse();
            }
        }
        self.compare();
    }

    fn touch(&mut self, n: usize) {
        if self.view.has_copy(&name(n)) && !self.read.contains(&n) {
            self.read.push(n);
        }
    }

    fn change(&mut self, n: usize, value: Option<u64>) {
        self.touch(n);
        if self.view.has_copy(&name(n)) {
            self.next.insert(n, value);
        }
    }

    fn discard(&mut self) {
        self.read.clear();
        self.next.clear();
    }

    /// Commits the change, and compares the commit with what was read and changed.
    fn settle(&mut self) {
        self.last += 1;
        let Commit { guards, writes } = self.view.commit(revision(self.last), Vec::new(), Vec::new());
        let read: Vec<_> = self.read.iter().map(|n| (name(*n).into(), self.stored[*n].is_some())).collect();
        let guarded: Vec<_> = guards.into_iter().map(|guard| (guard.name, guard.seen.is_some())).collect();
        assert_eq!(guarded, read);
        self.next.retain(|n, next| *next != self.stored[*n]);
        assert_eq!(writes.len(), self.next.len());
        for write in writes {
            let (name_written, value) = match write {
                Write::Put(name, record) => (name, Some(reading::value::<Told>(&record).unwrap().event)),
                Write::Remove(name) => (name, None),
                Write::Append { .. }
                | Write::Trim { .. }
                | Write::Drop(_)
                | Write::Enter(..)
                | Write::Leave(..) => panic!("the view changes only records"),
            };
            let n = (0..NAMES).find(|n| *name(*n) == name_written).unwrap();
            assert_eq!(self.next.get(&n), Some(&value));
        }
        for (n, next) in std::mem::take(&mut self.next) {
            self.stored[n] = next;
        }
        self.discard();
        self.view.settle(revision(self.last));
    }

    /// Compares each copy with its record.
    fn compare(&mut self) {
        for n in 0..NAMES {
            let expected = self.next.get(&n).copied().unwrap_or(self.stored[n]);
            if self.view.has_copy(&name(n)) {
                assert_eq!(self.view.peek(&name(n)).map(|told| told.event), expected, "{n}");
            } else {
                assert_eq!(self.view.peek(&name(n)), None);
            }
        }
    }
}

fn revision(n: u64) -> Revision {
    Revision(n.to_be_bytes())
}

fn checked() -> Checked {
    let view = View::of(&names::space(account(1)));
    Checked { view, stored: [None; NAMES], next: BTreeMap::new(), read: Vec::new(), last: 0 }
}

proptest! {
    #[test]
    fn a_copy_is_found_under_its_own_name_only(steps in prop::collection::vec(step(), 1..60)) {
        let mut checked = checked();
        for step in &steps {
            checked.take(step);
        }
    }
}

#[test]
fn a_change_whose_copies_are_dropped_writes_nothing() {
    for drop in [|view: &mut View| view.shrink(0, Day::of(START)), |view: &mut View| view.forget(&name(0))] {
        let mut view = View::of(&names::space(account(1)));
        view.keep(name(0).into(), None);
        view.put(&name(0), Told { event: 1 });
        drop(&mut view);
        // The next copy takes the same place.
        view.keep(name(1).into(), None);
        let Commit { guards, writes } = view.commit(revision(1), Vec::new(), Vec::new());
        assert!(guards.is_empty() && writes.is_empty());
        assert!(view.get(&name(0)).unwrap().is_none() && view.is_missing_some());
        assert!(view.peek(&name(1)).is_none());
    }
}
