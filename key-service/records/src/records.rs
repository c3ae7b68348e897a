//! Promises of a backend: records by name, each with a revision, which are compared and written together.
//!
//! A backend knows bytes, names and revisions, but no nouns or rules. The caller decides on records that it has read,
//! and guards them in the commit. If a guarded record has changed since, the commit writes nothing.

use std::sync::Arc;

use async_trait::async_trait;
use minicbor::Encode;

use crate::name_bytes::NameBytes;

/// Words of a commit that keeps no other commit waiting, as [`Commit::words`] counts them. In Redis it takes a few
/// milliseconds.
pub const MOST_WORDS: usize = 8_000;

/// Records that commit together: those of an account, or a few small ones. The name is not empty and has no `}`, since
/// Redis takes it as the hash tag that keeps a space in one slot of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Space(Arc<str>);

impl Space {
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        debug_assert!(!name.is_empty() && !name.contains('}'), "{name}");
        Self(name)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Records of a space that may be dropped together: those of one kind, or of a part of the kind, such as a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Set {
    pub table: u8,
    /// Part of the kind; zero if the kind has one part.
    pub part: u32,
}

/// Name of a record in its space.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The set of the record.
    pub set: Set,
    /// Name within the set.
    pub key: NameBytes,
}

/// An index of a space: entries without values, in the order of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Index(pub u8);

/// A log of a space: values, each with a number above all earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Log(pub u8);

/// Random bits of the commit that wrote a record last. A counter would repeat after a removal or a failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Revision(pub [u8; Self::SIZE]);

impl Revision {
    pub const SIZE: usize = 8;
}

/// A record as it is kept: its revision, the lowest form of a program that may write it, and its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record(Vec<u8>);

impl Record {
    const HEAD: usize = Revision::SIZE + 1;

    /// Makes a record whose message is these bytes.
    pub fn new(revision: Revision, form: u8, message: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity((Self::HEAD + message.len()).max(128));
        bytes.extend(revision.0);
        bytes.push(form);
        bytes.extend(message);
        Self(bytes)
    }

    /// Makes a record of a value.
    pub fn of(revision: Revision, form: u8, value: &impl Encode<()>) -> Self {
        let mut record = Self::new(revision, form, &[]);
        shared::stored::append(value, &mut record.0);
        record
    }

    /// Reads the bytes of a record; `None` if they are too short.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        (bytes.len() >= Self::HEAD).then_some(Self(bytes))
    }

    /// Bytes of the record, as backends keep them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Bytes of the record, as backends keep them.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Returns the commit that wrote the record.
    pub fn revision(&self) -> Revision {
        let mut revision = [0; Revision::SIZE];
        revision.copy_from_slice(&self.0[..Revision::SIZE]);
        Revision(revision)
    }

    /// Returns the lowest form of a program that may write the record.
    pub fn form(&self) -> u8 {
        self.0[Revision::SIZE]
    }

    pub fn message(&self) -> &[u8] {
        &self.0[Self::HEAD..]
    }
}

/// A record as a decision saw it. The commit holds only if it is still the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    pub name: Name,
    /// Revision that was seen; `None` if there was no record.
    pub seen: Option<Revision>,
}

/// A change of a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Appends values to a log, numbered from `first`, and may drop those that are not among the last `kept`.
    Append {
        log: Log,
        /// Number of the first value: one more than the log's last number, which a guarded record tells. Nothing is
        /// written if the log already had the number of the last value.
        first: u64,
        /// Values to append; at least one.
        values: Vec<Vec<u8>>,
        /// Number of values that must stay.
        kept: u64,
    },
    /// Drops the values of a log whose numbers are below `first`. A backend that keeps several values together may drop them
    /// later.
    Trim {
        log: Log,
        /// Lowest number that is kept. It is never above the last value's, so that the log remembers where to go on.
        first: u64,
    },
    /// Writes a record. If the decision has read it, a guard names it.
    Put(Name, Record),
    /// Removes a record, if there is one.
    Remove(Name),
    Drop(Set),
    /// Puts an entry into an index.
    Enter(Index, Vec<u8>),
    /// Takes an entry out of an index, if it is there.
    Leave(Index, Vec<u8>),
}

/// Writes that take effect if every guard holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Records as the decision saw them, each once.
    pub guards: Vec<Guard>,
    /// Changes, of which each record has at most one.
    pub writes: Vec<Write>,
}

impl Commit {
    /// Words of the commit, roughly as Redis counts them.
    pub fn words(&self) -> usize {
        let of_write = |write: &Write| match write {
            Write::Append { values, .. } => 4 + 2 * values.len(),
            Write::Trim { .. } | Write::Put(..) | Write::Enter(..) => 4,
            Write::Remove(_) | Write::Drop(_) | Write::Leave(..) => 3,
        };
        2 * self.guards.len() + self.writes.iter().map(of_write).sum::<usize>()
    }
}

/// Losses that an answered commit survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// None: the commit only asked a question, or its loss does no harm.
    Volatile,
    /// The loss of the server that wrote, if the operator has replicas awaited. Meant for holds, which move no money,
    /// but which a failover alone must not forget.
    Replicated,
    /// The loss of power too, as far as the backend reports what is on its disk. Meant for money and keys.
    #[default]
    Durable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    Written,
    /// Nothing is written, since some guards do not hold. Each comes as its place, with the record as it is now.
    Conflict(Vec<(usize, Option<Record>)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Ascending,
    Descending,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    Records(Vec<Name>),
    /// Records of a set, some hundred at a time, in any order: from the beginning, or after the cursor of a page. A
    /// record that exists all the while is on one of the pages.
    Set(Set, Option<Cursor>),
    /// Entries of an index from `from` to before `to`; `None` is no bound.
    Entries {
        index: Index,
        from: Vec<u8>,
        /// First entry that is left out.
        to: Option<Vec<u8>>,
        order: Order,
        limit: usize,
    },
    /// Values of a log whose numbers are in a range.
    Values {
        log: Log,
        from: u64,
        to: u64,
        order: Order,
        limit: usize,
    },
}

/// Entries that a question about a whole index asks for, more than any has.
const WHOLE: usize = 10_000_000;

impl Question {
    /// Asks for all entries of an index.
    pub const fn whole(index: Index) -> Self {
        Self::Entries { index, from: Vec::new(), to: None, order: Order::Ascending, limit: WHOLE }
    }

    /// Asks for this entry of an index, which may be absent.
    pub fn entry(index: Index, entry: &[u8]) -> Self {
        let (from, to) = (entry.to_vec(), Some([entry, &[0][..]].concat()));
        Self::Entries { index, from, to, order: Order::Ascending, limit: 1 }
    }
}

/// Position between two pages of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub Vec<u8>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    Set(Set),
    Index(Index),
    Log(Log),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Records, in the order of the names asked for.
    Records(Vec<Option<Record>>),
    /// A page of a set, and the cursor of the next page; `None` on the last page.
    Set(Vec<(Vec<u8>, Record)>, Option<Cursor>),
    /// Entries, in the order asked for.
    Entries(Vec<Vec<u8>>),
    /// Values with their numbers, in the order asked for.
    Values(Vec<(u64, Vec<u8>)>),
}

/// Servers of a backend that do not serve while others do, each with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingServers(pub Vec<String>);

/// A time in which one server carries out the commits of a space. The server of the next term may lack some of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Term(pub u64);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The backend did not answer. The commit may have taken effect, or may still do so.
    #[error("{0}")]
    Unknown(String),
    /// The backend has done nothing.
    #[error("{0}")]
    NotDone(String),
    /// The backend's data have a form that no program writes.
    #[error("{0}")]
    Damaged(String),
}

/// A database that compares and writes. Commits of a space take effect one after another. An answered commit survives
/// what [`Records::settle`] was asked for afterwards.
#[async_trait]
pub trait Records: Send + Sync + 'static {
    /// Name of the database in spans.
    fn system(&self) -> &'static str;

    /// Answers questions about a space as it is at one moment.
    async fn read(&self, space: &Space, questions: Vec<Question>) -> Result<Vec<Answer>, Failure>;

    /// Writes everything if every guard holds, and nothing otherwise. A commit may be sent twice if one of its guards
    /// names a record that it changes: the second time, this guard does not hold.
    async fn commit(&self, space: &Space, commit: Commit) -> Result<Committed, Failure>;

    /// Words that a commit should have at most, as [`Commit::words`] counts them. One that is larger is taken too, up to a
    /// bound of the backend, or refused before anything is written.
    fn most_words(&self) -> usize {
        MOST_WORDS
    }

    /// Lists all places of all spaces, to copy a backend that nobody uses meanwhile. Other calls may wait for this one.
    async fn places(&self) -> Result<Vec<(Space, Place)>, Failure>;

    /// The present term of the server that has a space.
    async fn term(&self, _space: &Space) -> Term {
        Term::default()
    }

    /// Waits until the answered commits of a space are this durable, and holds up no other commit. Callers wait before
    /// they answer a change, and before they answer that a change was made earlier, since an earlier call may have
    /// failed while waiting. `since` is the term before the commits. [`Failure::Unknown`] if the backend cannot tell, and
    /// if that term is over.
    async fn settle(&self, _space: &Space, _durability: Durability, _since: Term) -> Result<(), Failure> {
        Ok(())
    }

    /// Succeeds if a server answers and has loaded its data, and names those that do not.
    async fn ping(&self) -> Result<MissingServers, Failure> {
        Ok(MissingServers::default())
    }

    /// Milliseconds by which our clock is ahead of the backend's; `None` if the backend has no clock of its own. Fails
    /// while the backend loads its data.
    async fn clock_skew(&self) -> Result<Option<i64>, Failure> {
        Ok(None)
    }

    /// Returns whether the remaining space is reserved for holds and captures. The answer may be a second old. It is
    /// always `false` for a backend that sees no bound.
    async fn is_nearly_full(&self) -> Result<bool, Failure> {
        Ok(false)
    }

    /// Share of the space that is used, from 0 to 1: of the memory of the fullest server, or of the disk. `None`
    /// without a bound.
    async fn used_ratio(&self) -> Result<Option<f64>, Failure> {
        Ok(None)
    }

    /// Describes what answered writes may not survive, and what to do about it.
    async fn persistence_warnings(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Times in milliseconds since 1970, the earliest first. Commits answered after each of them may have been lost with a
    /// server that another one replaced, and the numbers of their values given to others.
    async fn losses(&self) -> Result<Vec<i64>, Failure> {
        Ok(Vec::new())
    }

    /// Writes something small to every server, which changes nothing. Fails if all refuse the write, because space is
    /// short or for another reason, and names those that do.
    async fn try_write(&self) -> Result<MissingServers, Failure> {
        Ok(MissingServers::default())
    }
}
