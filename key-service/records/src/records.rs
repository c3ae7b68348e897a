//! What a backend promises: records by name, each with a revision, that are compared and written together.
//!
//! A backend knows bytes, names and revisions, and no noun or rule. The caller decides by records that it has read, and guards
//! them in the commit. If a guarded record has changed since, the commit writes nothing.

use std::sync::Arc;

use async_trait::async_trait;
use prost::Message;

/// Words that every backend takes in a commit, as Redis counts them: guards two, writes up to four.
pub const MOST_WORDS: usize = 2_000;

/// Records that commit together: those of an account, or a few small ones. The name is not empty and has no `}`, since Redis takes
/// it as the hash tag that keeps a space in one slot of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Space(String);

impl Space {
    /// The space of this name.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        debug_assert!(!name.is_empty() && !name.contains('}'), "{name}");
        Self(name)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Records of a space that may be dropped together: a kind of records, or a part of the kind, such as a day.
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

/// An index of a space: entries without values, in the order of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Index(pub u8);

/// A log of a space: values, each with a number above all earlier ones.
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
        /// Number of the first value: one more than the last number of the log, which a guarded record tells. Nothing is written
        /// if the log has had the number of the last value.
        first: u64,
        /// The values; at least one.
        values: Vec<Vec<u8>>,
        /// Number of values to be kept at least.
        kept: u64,
    },
    /// Drops the values of a log whose numbers are below `first`. A backend that keeps several values together may drop them
    /// later.
    Trim {
        /// The log.
        log: Log,
        /// Lowest number that is kept. Never above the last value's, so that the log remembers where to go on.
        first: u64,
    },
    /// Writes a record. If the decision has read the record, a guard names it.
    Put(Name, Record),
    /// Removes a record, if there is one.
    Remove(Name),
    /// Removes a set.
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
    /// The changes. A record is written once.
    pub writes: Vec<Write>,
}

/// What answered commits survive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Nothing: the commit only asked a question, or its loss does no harm.
    Volatile,
    /// The loss of the server that wrote, if the operator has replicas awaited. For holds, which move no money, and which must
    /// not be forgotten by a failover alone.
    Replicated,
    /// The loss of power too, as far as the backend tells what is on its disk. For money and for keys.
    #[default]
    Durable,
}

/// Effect of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// Everything is written.
    Written,
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
    /// Records of a set, some hundred at a time in any order: from the beginning, or behind the cursor of a page. A record that
    /// exists all the while is on one of the pages.
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

/// A part of a space that is kept together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Records.
    Set(Set),
    /// Entries.
    Index(Index),
    /// Values.
    Log(Log),
}

/// Answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The records, in the order of the names.
    Records(Vec<Option<Record>>),
    /// A page of a set, and the cursor of the next page; `None` on the last page.
    Set(Vec<(Vec<u8>, Record)>, Option<Cursor>),
    /// Entries, in the order asked for.
    Entries(Vec<Vec<u8>>),
    /// Values with their numbers, in the order asked for.
    Values(Vec<(u64, Vec<u8>)>),
}

/// A call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The backend did not answer. A commit may have taken effect, or may take effect later.
    #[error("{0}")]
    Unknown(String),
    /// The backend carried nothing out.
    #[error("{0}")]
    NotDone(String),
    /// The backend's data have a form that no program writes.
    #[error("{0}")]
    Damaged(String),
}

/// A database that compares and writes. Commits of a space take effect one after another. An answered commit survives what
/// [`Records::settle`] was asked for afterwards.
#[async_trait]
pub trait Records: Send + Sync + 'static {
    /// Name of the database in spans.
    fn system(&self) -> &'static str;

    /// Answers questions about a space as of one moment.
    async fn read(&self, space: &Space, questions: Vec<Question>) -> Result<Vec<Answer>, Failure>;

    /// Writes everything if every guard holds, and nothing otherwise. Sending a commit twice is safe if one of its guards names a
    /// record that the commit changes: the second time, this guard does not hold.
    async fn commit(&self, space: &Space, commit: Commit) -> Result<Committed, Failure>;

    /// Words that a commit has at most: guards count two, writes up to four.
    fn most_words(&self) -> usize {
        MOST_WORDS
    }

    /// All places of all spaces, for a copy of a backend that nobody uses meanwhile: other calls may wait for this one.
    async fn places(&self) -> Result<Vec<(Space, Place)>, Failure>;

    /// Waits until the commits of a space that were answered before are this durable; holds up no other commit. Called before a
    /// change is answered, and before a change that had been made already is: an earlier call may have failed while waiting.
    /// [`Failure::Unknown`] if the backend cannot tell.
    async fn settle(&self, _space: &Space, _durability: Durability) -> Result<(), Failure> {
        Ok(())
    }

    /// Succeeds if the backend answers and has loaded its data.
    async fn ping(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Milliseconds by which our clock is ahead of the backend's; `None` where the backend has no clock of its own. Fails while
    /// the backend still loads its data.
    async fn clock_skew(&self) -> Result<Option<i64>, Failure> {
        Ok(None)
    }

    /// Returns whether the remaining space is kept for holds and captures. The answer may be a second old. Always `false` for a
    /// backend that sees no bound.
    async fn is_nearly_full(&self) -> Result<bool, Failure> {
        Ok(false)
    }

    /// Share of the room that is used, from 0 to 1: the memory of the fullest server, or the disk. `None` without a bound.
    async fn used_ratio(&self) -> Result<Option<f64>, Failure> {
        Ok(None)
    }

    /// What an answered write may not survive, if anything, and what to do about it.
    async fn persistence_warning(&self) -> Option<&'static str> {
        None
    }

    /// Writes something small everywhere, which changes nothing. Fails where a write is refused, for want of room or for another
    /// reason.
    async fn try_write(&self) -> Result<(), Failure> {
        Ok(())
    }
}
