//! Tests of what a backend promises. Each case runs against each backend.

mod guards;
mod halves;
mod histories;
mod large;
mod order;
mod sets;
mod writers;

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    maps::Maps,
    records::{
        Answer, Commit, Committed, Failure, Guard, Name, Question, Record, Records, Revision, Set, Space,
        Write,
    },
    sqlite::Sqlite,
};

/// A set of records for the cases.
pub(crate) const SET: Set = Set { table: 1, part: 0 };

/// A backend under test, separate and empty for each case.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) records: Arc<dyn Records>,
    pub(crate) space: Space,
    /// Dropped with the backend: a folder, a server.
    _kept: Option<Arc<dyn Any + Send + Sync>>,
}

/// The list of cases, written once.
macro_rules! contract {
    ($backend:ident: $subject:expr) => {
        mod $backend {
            contract! { @cases $subject;
                guards::{
                    a_commit_writes_everything,
                    each_guard_that_does_not_hold_is_answered_with_the_record_and_nothing_is_written,
                    a_commit_without_writes_is_a_question,
                    a_commit_sent_twice_finds_its_own_revision,
                    names_differ_by_space_set_part_and_key,
                    a_record_may_be_put_and_removed_without_a_guard,
                    records_and_names_are_any_bytes,
                }
                large::{
                    a_commit_of_ten_thousand_entries_takes_effect_whole,
                    a_commit_of_ten_thousand_entries_that_fails_writes_nothing,
                }
                order::{
                    entries_come_in_the_order_of_their_bytes,
                    an_entry_is_there_once,
                    values_come_with_their_numbers,
                    a_log_keeps_its_last_values,
                    a_number_that_a_log_has_had_is_refused,
                    a_log_that_is_trimmed_goes_on_behind_its_last_number,
                }
                sets::{
                    a_set_is_dropped_and_its_other_parts_stay,
                    a_guard_after_a_drop_sees_no_record,
                    pages_of_a_set_have_each_record,
                    pages_of_a_set_have_what_stays_while_others_write,
                }
                writers::{
                    questions_are_answered_as_of_one_moment,
                    two_writers_lose_nothing_and_double_nothing,
                    of_rivals_at_once_one_wins,
                }
                histories::{
                    random_histories_agree_with_maps,
                }
            }
        }
    };
    (@cases $subject:expr; $($module:ident::{$($case:ident),+ $(,)?})+) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::suite::$module::$case(&$subject).await;
            }
        )+)+
    };
}

contract!(maps: crate::suite::Subject::new(crate::maps::Maps::default(), None));
contract!(sqlite_memory: crate::suite::Subject::sqlite_memory());
contract!(sqlite_file: crate::suite::Subject::sqlite_file());
contract!(redis: crate::redis::tests::subject().await);
contract!(redis_cluster: crate::redis::tests::cluster_subject().await);

impl Subject {
    pub(crate) fn new(records: impl Records, kept: Option<Arc<dyn Any + Send + Sync>>) -> Self {
        Self::over(Arc::new(records), kept)
    }

    pub(crate) fn over(records: Arc<dyn Records>, kept: Option<Arc<dyn Any + Send + Sync>>) -> Self {
        Self { records, space: Space::new("suite"), _kept: kept }
    }

    fn sqlite_memory() -> Self {
        Self::new(Sqlite::in_memory().unwrap(), None)
    }

    fn sqlite_file() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let records = Sqlite::open(&folder.path().join("store.db")).unwrap();
        Self::new(records, Some(Arc::new(folder)))
    }

    /// Returns an empty model.
    fn model() -> Self {
        Self::new(Maps::default(), None)
    }

    pub(crate) async fn try_commit(&self, guards: &[Guard], writes: &[Write]) -> Result<Committed, Failure> {
        let commit = Commit { guards: guards.to_vec(), writes: writes.to_vec() };
        let mut committed = self.records.commit(&self.space, commit).await?;
        if let Committed::Conflict(present) = &mut committed {
            present.sort_by_key(|(place, _)| *place);
        }
        Ok(committed)
    }

    pub(crate) async fn commit(&self, guards: &[Guard], writes: &[Write]) -> Committed {
        self.try_commit(guards, writes).await.unwrap()
    }

    /// Commits without guards.
    pub(crate) async fn write(&self, writes: &[Write]) {
        assert_eq!(self.commit(&[], writes).await, Committed::Written);
    }

    pub(crate) async fn ask(&self, question: Question) -> Answer {
        let mut answers = self.records.read(&self.space, vec![question]).await.unwrap();
        assert_eq!(answers.len(), 1);
        answers.remove(0)
    }

    pub(crate) async fn look_up(&self, names: &[Name]) -> Vec<Option<Record>> {
        match self.ask(Question::Records(names.to_vec())).await {
            Answer::Records(records) => records,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn name(key: impl AsRef<[u8]>) -> Name {
    Name { set: SET, key: key.as_ref().into() }
}

/// Returns a revision that no other call returns.
pub(crate) fn fresh() -> Revision {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // An odd factor makes the bytes differ everywhere.
    Revision(NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())
}

pub(crate) fn record(message: impl AsRef<[u8]>) -> Record {
    Record::new(fresh(), 1, message.as_ref())
}

pub(crate) fn seen(name: &Name, record: &Record) -> Guard {
    Guard { name: name.clone(), seen: Some(record.revision()) }
}

pub(crate) fn absent(name: &Name) -> Guard {
    Guard { name: name.clone(), seen: None }
}
