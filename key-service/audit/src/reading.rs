//! The books of a store, read without changing them.

use std::ops::RangeInclusive;

use key_service_ledger::{
    StoreError,
    journal::{JournalEntry, read_entry},
    view::FORM,
};
use prost::Message;
use records::{Answer, Index, Log, Name, Order, Question, Record, Records, Space};
use shared::clock::Clock;

/// The books of all accounts of a store.
#[derive(Clone, Copy)]
pub struct Books<'a> {
    pub records: &'a dyn Records,
    pub clock: &'a dyn Clock,
    /// Most entries of a journal that the store keeps; `None` for all.
    pub journal_entries: Option<u64>,
}

impl Books<'_> {
    /// Answers questions about a space as it is at one moment.
    pub(crate) async fn ask(
        &self,
        space: &Space,
        questions: Vec<Question>,
    ) -> Result<Vec<Answer>, StoreError> {
        Ok(self.records.read(space, questions).await?)
    }

    /// Reads records at one moment, in the order of these names.
    pub(crate) async fn records_of(
        &self,
        space: &Space,
        names: Vec<Name>,
    ) -> Result<Vec<Option<Record>>, StoreError> {
        match self.ask(space, vec![Question::Records(names)]).await?.pop() {
            Some(Answer::Records(records)) => Ok(records),
            Some(_) | None => Err(no_answer()),
        }
    }

    /// Reads the messages of these names, with `None` for each that is absent.
    pub(crate) async fn get_all<M: Message + Default>(
        &self,
        space: &Space,
        names: Vec<Name>,
    ) -> Result<Vec<Option<M>>, StoreError> {
        let records = self.records_of(space, names).await?;
        records.iter().map(|record| record.as_ref().map(message).transpose()).collect()
    }

    pub(crate) async fn get<M: Message + Default>(
        &self,
        space: &Space,
        name: Name,
    ) -> Result<Option<M>, StoreError> {
        Ok(self.get_all(space, vec![name]).await?.pop().flatten())
    }

    /// Reads entries of an index from `from` to before `to`, at most `limit`.
    pub(crate) async fn entries(
        &self,
        space: &Space,
        index: Index,
        (from, to): (Vec<u8>, Option<Vec<u8>>),
        order: Order,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let question = Question::Entries { index, from, to, order, limit };
        match self.ask(space, vec![question]).await?.pop() {
            Some(Answer::Entries(entries)) => Ok(entries),
            Some(_) | None => Err(no_answer()),
        }
    }

    /// Reads values of a log whose numbers are in a range, at most `limit`.
    pub(crate) async fn values(
        &self,
        space: &Space,
        log: Log,
        numbers: RangeInclusive<u64>,
        order: Order,
        limit: usize,
    ) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        let (from, to) = numbers.into_inner();
        let question = Question::Values { log, from, to, order, limit };
        match self.ask(space, vec![question]).await?.pop() {
            Some(Answer::Values(values)) => Ok(values),
            Some(_) | None => Err(no_answer()),
        }
    }
}

/// The message of a record.
pub(crate) fn message<M: Message + Default>(record: &Record) -> Result<M, StoreError> {
    if record.form() > FORM {
        return Err(StoreError::Damaged("a record of a later version".into()));
    }
    M::decode(record.message()).map_err(|e| StoreError::Damaged(e.to_string()))
}

/// An entry of the journal as the log keeps it.
pub(crate) fn journal_entry(number: u64, value: &[u8]) -> Result<JournalEntry, StoreError> {
    read_entry(number, value).ok_or_else(|| StoreError::Damaged(format!("entry {number} of the journal")))
}

/// Error of an answer that does not fit its question.
pub(crate) fn no_answer() -> StoreError {
    StoreError::Damaged("an answer to another question".into())
}

/// Error of a record that no program writes.
pub(crate) fn damaged(what: &str) -> StoreError {
    StoreError::Damaged(format!("{what} cannot be read"))
}
