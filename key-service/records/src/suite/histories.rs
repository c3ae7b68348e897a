//! Runs random histories, and compares the backend with maps as a model.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use proptest::{
    collection::{btree_map, vec},
    prelude::*,
    test_runner::{Config, TestRunner},
};
use tokio::{runtime::Handle, task::block_in_place};

use super::{Subject, fresh, record};
use crate::records::{
    Committed, Guard, Index, Log, Name, Order, Question, Record, Revision, Set, Space, Write,
};

const HISTORIES: u32 = 48;
const NAMES: usize = 8;
const ENTRIES: usize = 6;

/// A commit. Its details depend on the state that the model has when the commit is made.
#[derive(Clone, Debug)]
struct Step {
    /// Guards by the number of the name. Each has the current revision or a wrong revision.
    guards: BTreeMap<usize, Sight>,
    /// Whether each record is written (`true`) or removed, by the number of its name.
    puts: BTreeMap<usize, bool>,
    /// Whether each entry is added (`true`) or removed, by the number of the entry.
    entries: BTreeMap<usize, bool>,
    /// Number of values to append.
    appended: usize,
    dropped: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
enum Sight {
    Right,
    Absent,
    Strange,
}

fn step() -> impl Strategy<Value = Step> {
    let sight = prop_oneof![
        9 => Just(Sight::Right),
        1 => Just(Sight::Absent),
        1 => Just(Sight::Strange),
    ];
    let dropped = prop_oneof![9 => Just(None), 1 => (0..2_u32).prop_map(Some)];
    (
        btree_map(0..NAMES, sight, 0..4),
        btree_map(0..NAMES, any::<bool>(), 0..4),
        btree_map(0..ENTRIES, any::<bool>(), 0..3),
        0..3_usize,
        dropped,
    )
        .prop_map(|(guards, puts, entries, appended, dropped)| Step {
            guards,
            puts,
            entries,
            appended,
            dropped,
        })
}

/// Returns a name in one of two parts of a set.
fn name(n: usize) -> Name {
    Name { set: Set { table: 1, part: u32::from(n % 2 == 1) }, key: vec![0xff; n / 2].into() }
}

fn entry(n: usize) -> Vec<u8> {
    [&b""[..], b"\0", b"a", b"a\0", b"\xff", b"\xff\xff"][n].to_vec()
}

struct History<'a> {
    subject: &'a Subject,
    model: Subject,
    /// Number of the log's last value.
    last: u64,
}

impl History<'_> {
    async fn run(&mut self, steps: Vec<Step>) {
        for step in steps {
            let (guards, writes) = self.commit_of(&step).await;
            let expected = self.model.commit(&guards, &writes).await;
            assert_eq!(self.subject.commit(&guards, &writes).await, expected, "{guards:?} {writes:?}");
            if expected == Committed::Written {
                self.last += step.appended as u64;
            }
        }
        for question in questions() {
            assert_eq!(self.subject.ask(question.clone()).await, self.model.ask(question).await);
        }
    }

    async fn commit_of(&self, step: &Step) -> (Vec<Guard>, Vec<Write>) {
        let mut guards = Vec::new();
        for (n, sight) in &step.guards {
            let name = name(*n);
            let seen = match sight {
                Sight::Right => {
                    self.model.look_up(std::slice::from_ref(&name)).await[0].as_ref().map(Record::revision)
                }
                Sight::Absent => None,
                Sight::Strange => Some(Revision([7; 8])),
            };
            guards.push(Guard { name, seen });
        }
        (guards, self.writes_of(step))
    }

    fn writes_of(&self, step: &Step) -> Vec<Write> {
        let mut writes = Vec::new();
        if step.appended > 0 {
            let values = (0..step.appended).map(|n| vec![7; n]).collect();
            writes.push(Write::Append { log: Log(1), first: self.last + 1, values, kept: u64::MAX });
        }
        writes.extend(step.dropped.map(|part| Write::Drop(Set { table: 1, part })));
        for (n, is_put) in &step.puts {
            let name = name(*n);
            if step.dropped != Some(name.set.part) {
                let put = |name| Write::Put(name, record(format!("{:?}", fresh())));
                writes.push(if *is_put { put(name) } else { Write::Remove(name) });
            }
        }
        for (n, is_entered) in &step.entries {
            let entry = entry(*n);
            writes.push(if *is_entered {
                Write::Enter(Index(1), entry)
            } else {
                Write::Leave(Index(1), entry)
            });
        }
        writes
    }
}

fn questions() -> Vec<Question> {
    let (log, index) = (Log(1), Index(1));
    let mut questions = vec![Question::Records((0..NAMES).map(name).collect())];
    for order in [Order::Ascending, Order::Descending] {
        for limit in [1, 100] {
            questions.push(Question::Values { log, from: 2, to: 9, order, limit });
            questions.push(Question::Entries { index, from: entry(1), to: Some(entry(5)), order, limit });
            questions.push(Question::Entries { index, from: Vec::new(), to: None, order, limit });
        }
    }
    questions
}

pub(super) async fn random_histories_agree_with_maps(subject: &Subject) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let config = Config { cases: HISTORIES, failure_persistence: None, ..Config::default() };
    let check = |steps: Vec<Step>| {
        let space = Space::new(format!("history {}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let subject = Subject { space, ..subject.clone() };
        let mut history = History { subject: &subject, model: Subject::model(), last: 0 };
        Handle::current().block_on(history.run(steps));
        Ok(())
    };
    block_in_place(|| TestRunner::new(config).run(&vec(step(), 1..40), check)).unwrap();
}
