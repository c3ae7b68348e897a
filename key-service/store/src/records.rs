//! What a backend promises: records by name, each with a revision, that are compared and written together.
//!
//! A backend knows bytes, names and revisions. It knows no noun and decides nothing: whoever commits has decided by the
//! records that the guards name, and a commit whose guards do not hold writes nothing.

use std::sync::Arc;

use async_trait::async_trait;
use prost::Message;

/// Words of a commit to Redis, and about as many of a statement elsewhere: guards count two, writes up to four.
pub const MOST_WORDS: usize = 2_000;

/// What commits together: an account, or something small of its own. The text has no `}`, which would end the hash tag of a
/// cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Space(String);

impl Space {
    /// The space of this name.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        debug_assert!(!name.contains('}'), "{name}");
        Self(name)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Records of a space that are dropped together: a kind of records, or a part of the kind, such as a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Set {
    /// The kind.
    pub table: u8,
    /// The part of the kind; zero where there is one part.
    pub part: u32,
}

/// Name of a record in its space.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The set of the record.
    pub set: Set,
    /// Name within the set. Guards and writes share it.
    pub key: Arc<[u8]>,
}

/// An ordered index of a space: entries in the order of their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Index(pub u8);

/// A log of a space: values with numbers that only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Log(pub u8);

/// The commit that wrote a record last: 64 random bits. A counter would repeat after a removal or a failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Revision(pub [u8; Self::SIZE]);

impl Revision {
    /// Bytes of a revision.
    pub const SIZE: usize = 8;
}

/// A record as it is kept: its revision, the lowest form of the program that may write it, its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record(Vec<u8>);

impl Record {
    /// Bytes before the message.
    const HEAD: usize = Revision::SIZE + 1;

    /// A record with these bytes for a message.
    pub fn new(revision: Revision, form: u8, message: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(Self::HEAD + message.len());
        bytes.extend(revision.0);
        bytes.push(form);
        bytes.extend(message);
        Self(bytes)
    }

    /// A record of a message.
    pub fn of(revision: Revision, form: u8, message: &impl Message) -> Self {
        let mut bytes = vec![0; Self::HEAD + message.encoded_len()];
        bytes[..Revision::SIZE].copy_from_slice(&revision.0);
        bytes[Revision::SIZE] = form;
        message.encode_raw(&mut &mut bytes[Self::HEAD..]);
        Self(bytes)
    }

    /// Reads a record as it is kept; `None` for bytes that are too short to be one.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        (bytes.len() >= Self::HEAD).then_some(Self(bytes))
    }

    /// The record as it is kept.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The record as it is kept.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The commit that wrote the record.
    pub fn revision(&self) -> Revision {
        let mut revision = [0; Revision::SIZE];
        revision.copy_from_slice(&self.0[..Revision::SIZE]);
        Revision(revision)
    }

    /// Lowest form of the program that may write the record.
    pub fn form(&self) -> u8 {
        self.0[Revision::SIZE]
    }

    /// The message.
    pub fn message(&self) -> &[u8] {
        &self.0[Self::HEAD..]
    }
}

/// A record as a decision saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The record.
    pub name: Name,
    /// Its revision; `None` where there was no record.
    pub seen: Option<Revision>,
}

/// A change of a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Appends values to a log, numbered from `first`, and may drop those that are not among the last `kept`.
    Append {
        /// The log.
        log: Log,
        /// Number of the first value: one more than the last number that the log has had, which a record among the guards tells.
        /// Nothing is written if the last value has a number that the log has had.
        first: u64,
        /// The values; at least one.
        values: Vec<Vec<u8>>,
        /// Number of values to be kept at least.
        kept: u64,
    },
    /// Writes a record. One that a decision has read is among the guards.
    Put(Name, Record),
    /// Removes a record, if there is one.
    Remove(Name),
    /// Removes a set.
    Drop(Set),
    /// Puts an entry into an index.
    Enter(Index, Vec<u8>),
    /// Takes an entry out of an index, if it is there.
    Leave(Index, Vec<u8>),
    /// Adds to a counter that nobody decides by; one that is absent is zero. A commit has at most one, which makes its
    /// repetition count twice.
    Add(Name, i64),
}

/// Writes that take effect if every guard holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Records as the decision saw them, each once.
    pub guards: Vec<Guard>,
    /// The changes. A record is written once.
    pub writes: Vec<Write>,
}

/// Effect of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// Everything is written. The sum of the counter that was added to, if one was.
    Written(Option<i64>),
    /// Nothing is written: these guards do not hold. The records as they are, by the place of their guard.
    Conflict(Vec<(usize, Option<Record>)>),
}

/// Order of entries and of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The lowest first.
    Ascending,
    /// The highest first.
    Descending,
}

/// A question about a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Records by name.
    Records(Vec<Name>),
    /// Records of a set, some hundred at a time in any order: from the beginning, or behind a page's `next`. One that is there
    /// all the time is on a page.
    Set(Set, Option<Cursor>),
    /// Entries of an index that begin at or behind `from` and before `to` (no bound where `None`).
    Entries {
        /// The index.
        index: Index,
        /// Lowest entry.
        from: Vec<u8>,
        /// First entry that is not asked for.
        to: Option<Vec<u8>>,
        /// Order of the entries.
        order: Order,
        /// Largest number of entries.
        limit: usize,
    },
    /// Values of a log whose numbers are in a range.
    Values {
        /// The log.
        log: Log,
        /// Lowest number.
        from: u64,
        /// Highest number.
        to: u64,
        /// Order of the values.
        order: Order,
        /// Largest number of values.
        limit: usize,
    },
}

/// Place between two pages of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub Vec<u8>);

/// Answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The records, in the order of the names.
    Records(Vec<Option<Record>>),
    /// A page of a set, and the place of the next; without one, this page is the last.
    Set(Vec<(Vec<u8>, Record)>, Option<Cursor>),
    /// Entries, in the order asked for.
    Entries(Vec<Vec<u8>>),
    /// Values with their numbers, in the order asked for.
    Values(Vec<(u64, Vec<u8>)>),
}

/// A call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The backend did not answer: a commit may have taken effect, or may yet.
    #[error("{0}")]
    Unknown(String),
    /// The backend answered that it carried nothing out.
    #[error("{0}")]
    NotDone(String),
    /// What is kept has another form than this program writes.
    #[error("{0}")]
    Damaged(String),
}

/// A database that compares and writes. Commits of a space take effect one after another. A commit that was answered survives
/// what the backend says it survives: see there.
#[async_trait]
pub trait Records: Send + Sync + 'static {
    /// Name of the database in spans.
    fn system(&self) -> &'static str;

    /// Answers questions about a space as of one moment.
    async fn read(&self, space: &Space, questions: Vec<Question>) -> Result<Vec<Answer>, Failure>;

    /// Writes everything, if every guard holds; otherwise nothing. A commit that writes is safe to send twice if it guards a
    /// record that it changes.
    async fn commit(&self, space: &Space, commit: Commit) -> Result<Committed, Failure>;
}
