//! Reads a space without a view or copies.

use std::ops::RangeInclusive;

use minicbor::Decode;
use records::{Answer, Index, Log, Name, Order, Question, Record, Records, Set, Space};

use crate::{error::StoreError, names::RecordName, view::form::LATER_FORM};

/// Reads one space at a time.
#[derive(Clone, Copy)]
pub struct SpaceReader<'a>(pub &'a dyn Records);

impl SpaceReader<'_> {
    /// Asks questions about a space. The answers are all as of one moment.
    pub async fn ask(self, space: &Space, questions: Vec<Question>) -> Result<Vec<Answer>, StoreError> {
        Ok(self.0.read(space, questions).await?)
    }

    /// Reads records as of one moment, in the order of these names.
    pub async fn records_of(
        self,
        space: &Space,
        names: Vec<Name>,
    ) -> Result<Vec<Option<Record>>, StoreError> {
        match self.ask(space, vec![Question::Records(names)]).await?.pop() {
            Some(Answer::Records(records)) => Ok(records),
            Some(_) | None => Err(no_answer()),
        }
    }

    /// Reads the values under these names, with `None` for each that is absent.
    pub async fn get_all<T: for<'b> Decode<'b, ()>>(
        self,
        space: &Space,
        names: Vec<RecordName<T>>,
    ) -> Result<Vec<Option<T>>, StoreError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<Name> = names.into_iter().map(Name::from).collect();
        let records = self.records_of(space, names.clone()).await?;
        let read = |(name, record): (&Name, &Option<Record>)| {
            let read = record.as_ref().map(value).transpose();
            read.inspect_err(|_| tell_damage(space, name))
        };
        names.iter().zip(&records).map(read).collect()
    }

    /// Reads the value under this name.
    pub async fn get<T: for<'b> Decode<'b, ()>>(
        self,
        space: &Space,
        name: RecordName<T>,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.get_all(space, vec![name]).await?.pop().flatten())
    }

    /// Reads at most `limit` entries of an index, from `from` to before `to`.
    pub async fn entries(
        self,
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

    /// Reads at most `limit` of a log's values, with numbers in this range.
    pub async fn values(
        self,
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

/// Logs a record that cannot be read.
pub fn tell_damage(space: &Space, name: &Name) {
    metrics::counter!("keyservice_store_damaged_records_total").increment(1);
    let Name { set: Set { table, part }, key } = name;
    let (space, name) = (space.as_str(), hex::encode(key));
    tracing::error!(space, table, part, name, "a record cannot be read; requests that need it are refused");
}

/// Reads the value of a record.
pub fn value<'b, T: Decode<'b, ()>>(record: &'b Record) -> Result<T, StoreError> {
    if record.form() > LATER_FORM {
        return Err(StoreError::Damaged("a record of a later version".into()));
    }
    shared::stored::read(record.message()).map_err(|e| StoreError::Damaged(e.to_string()))
}

/// Returns the error for an answer that does not fit its question.
pub fn no_answer() -> StoreError {
    StoreError::Damaged("an answer to another question".into())
}
