//! Reads the content of a place page by page.

use std::sync::Arc;

use super::error::{CopyError, no_answer};
use crate::records::{Answer, Cursor, Index, Log, Name, Order, Place, Question, Record, Records, Set, Space};

/// Number of entries or values read at once.
const AT_ONCE: usize = 500;

#[derive(PartialEq, Eq)]
pub(super) enum CopiedPage {
    Records(Vec<(Name, Record)>),
    Entries(Index, Vec<Vec<u8>>),
    Values(Log, Vec<(u64, Vec<u8>)>),
}

impl CopiedPage {
    /// Returns whether this page begins with all of `other`.
    pub(super) fn begins_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Records(ours), Self::Records(theirs)) => ours.starts_with(theirs),
            (Self::Entries(_, ours), Self::Entries(_, theirs)) => ours.starts_with(theirs),
            (Self::Values(_, ours), Self::Values(_, theirs)) => ours.starts_with(theirs),
            (Self::Records(_) | Self::Entries(..) | Self::Values(..), _) => false,
        }
    }
}

/// Content of a place, page by page. An index and a log are in order; a set is in any order.
pub(super) enum Pages {
    Set(Set, Option<Cursor>),
    Index(Index, Vec<u8>),
    Log(Log, u64),
    Ended,
}

impl Pages {
    pub(super) const fn of(place: Place) -> Self {
        match place {
            Place::Set(set) => Self::Set(set, None),
            Place::Index(index) => Self::Index(index, Vec::new()),
            Place::Log(log) => Self::Log(log, 0),
        }
    }

    /// Returns the next page; `None` after the last.
    pub(super) async fn next(
        &mut self,
        of: &Arc<dyn Records>,
        space: &Space,
    ) -> Result<Option<CopiedPage>, CopyError> {
        let (order, limit) = (Order::Ascending, AT_ONCE);
        let question = match self {
            Self::Ended => return Ok(None),
            Self::Set(set, place) => Question::Set(*set, place.take()),
            Self::Index(index, from) => {
                Question::Entries { index: *index, from: std::mem::take(from), to: None, order, limit }
            }
            // After the first page, numbers have no gaps.
            Self::Log(log, from) => {
                let to = if *from == 0 { u64::MAX } else { from.saturating_add(limit as u64 - 1) };
                Question::Values { log: *log, from: *from, to, order, limit }
            }
        };
        let answer = of.read(space, vec![question]).await?.pop();
        let (page, rest) = match (&*self, answer) {
            (Self::Set(set, _), Some(Answer::Set(records, next))) => {
                let name = |key: Vec<u8>| Name { set: *set, key: key.into() };
                let records = records.into_iter().map(|(key, record)| (name(key), record)).collect();
                (CopiedPage::Records(records), next.map(|next| Self::Set(*set, Some(next))))
            }
            (Self::Index(index, _), Some(Answer::Entries(entries))) => {
                let from = entries.last().filter(|_| entries.len() == limit);
                let rest = from.map(|last| Self::Index(*index, [last, &[0][..]].concat()));
                (CopiedPage::Entries(*index, entries), rest)
            }
            (Self::Log(log, _), Some(Answer::Values(values))) => {
                let rest = values.last().map(|(last, _)| Self::Log(*log, last.saturating_add(1)));
                (CopiedPage::Values(*log, values), rest)
            }
            (Self::Set(..) | Self::Index(..) | Self::Log(..) | Self::Ended, _) => return Err(no_answer()),
        };
        *self = rest.unwrap_or(Self::Ended);
        Ok(Some(page))
    }
}
