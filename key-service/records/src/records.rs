//! What a backend promises: it keeps records by name, each with a revision, and it compares and writes several records
//! at once.
//!
//! A backend knows bytes, names and revisions, but no nouns or rules. The caller decides with records that it has read,
//! and its commit has guards on these records. If a guarded record has changed in the meantime, the commit writes
//! nothing.

use std::sync::Arc;

use async_trait::async_trait;
use minicbor::Encode;

use crate::name_bytes::NameBytes;

/// Maximum number of words, as [`Commit::words`] counts them, in a commit that does not delay other commits. Redis
/// needs a few milliseconds for this many words.
pub const MOST_WORDS: usize = 8_000;

/// Records that can be committed together: all records of an account, or some small records of other kinds. The name is
/// not empty and has no `}`, because Redis uses it as a hash tag, which keeps the space in one slot of a cluster.
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

/// Records of a space that can be dropped together: all records of one kind, or a part of them, such as those of one
/// day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Set {
    pub table: u8,
    /// Number of the part; zero if records of this kind are not divided into parts.
    pub part: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    pub set: Set,
    /// Name within the set.
    pub key: NameBytes,
}

/// An index of a space: entries without values, ordered by their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Index(pub u8);

/// A log of a space: values with numbers. Each value's number is above those of all earlier values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Log(pub u8);

/// Random bits that identify the commit that last wrote a record. A counter would not do, because it would repeat
/// numbers after a removal or a failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Revision(pub [u8; Self::SIZE]);

impl Revision {
    pub const SIZE: usize = 8;
}

/// A stored record: its revision, its form, and its message. The form is a format version: a program whose own version
/// is lower must not write the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record(Vec<u8>);

impl Record {
    const HEAD: usize = Revision::SIZE + 1;

    /// Creates a record with these bytes as its message.
    pub fn new(revision: Revision, form: u8, message: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity((Self::HEAD + message.len()).max(128));
        bytes.extend(revision.0);
        bytes.push(form);
        bytes.extend(message);
        Self(bytes)
    }

    pub fn of(revision: Revision, form: u8, value: &impl Encode<()>) -> Self {
        let mut record = Self::new(revision, form, &[]);
        shared::stored::append(value, &mut record.0);
        record
    }

    /// Reads a stored record; `None` if the bytes are too short.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        (bytes.len() >= Self::HEAD).then_some(Self(bytes))
    }

    /// Returns the record as backends store it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the record as backends store it.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Returns the revision, which identifies the commit that wrote the record.
    pub fn revision(&self) -> Revision {
        let mut revision = [0; Revision::SIZE];
        revision.copy_from_slice(&self.0[..Revision::SIZE]);
        Revision(revision)
    }

    /// Returns the format version. A program whose own version is lower must not write the record.
    pub fn form(&self) -> u8 {
        self.0[Revision::SIZE]
    }

    pub fn message(&self) -> &[u8] {
        &self.0[Self::HEAD..]
    }
}

/// The name and revision of a record with which the caller decided. The commit takes effect only if the record still
/// has this revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    pub name: Name,
    /// Revision that the caller has read; `None` if there was no record.
    pub seen: Option<Revision>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Appends values to a log, numbered from `first`. May drop all but the last `kept` values.
    Append {
        log: Log,
        /// Number of the first value: one more than the log's last number, which the caller keeps in a guarded record.
        /// If the log already has a value with the last value's number, nothing is written.
        first: u64,
        /// The values, at least one.
        values: Vec<Vec<u8>>,
        /// Number of values that must be kept.
        kept: u64,
    },
    /// Drops the values of a log whose numbers are below `first`. A backend that stores several values together may
    /// drop them later.
    Trim {
        log: Log,
        /// Lowest number to keep. It is at most the last value's number, so that the log remembers where to continue.
        first: u64,
    },
    /// Writes a record. If the caller has read the record to decide, a guard must name it.
    Put(Name, Record),
    /// Removes a record, if there is one.
    Remove(Name),
    Drop(Set),
    /// Puts an entry into an index.
    Enter(Index, Vec<u8>),
    /// Removes an entry from an index, if it is there.
    Leave(Index, Vec<u8>),
}

/// Writes that take effect if every guard holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Guards on the records that the caller has read to decide, each record once.
    pub guards: Vec<Guard>,
    /// The writes, at most one for each record.
    pub writes: Vec<Write>,
}

impl Commit {
    /// Returns the number of words in the commit, roughly as Redis counts them.
    pub fn words(&self) -> usize {
        let of_write = |write: &Write| match write {
            Write::Append { values, .. } => 4 + 2 * values.len(),
            Write::Trim { .. } | Write::Put(..) | Write::Enter(..) => 4,
            Write::Remove(_) | Write::Drop(_) | Write::Leave(..) => 3,
        };
        2 * self.guards.len() + self.writes.iter().map(of_write).sum::<usize>()
    }
}

/// Which failures a commit survives once it has been answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// The commit may be lost. It only asked a question, or its loss does no harm.
    Volatile,
    /// The commit survives the loss of the server that wrote it, if the operator has set a number of replicas to wait
    /// for. This is meant for holds, which move no money but should survive a failover.
    Replicated,
    /// The commit also survives a power failure, as far as the backend knows what is on its disk. This is meant for
    /// money and keys.
    #[default]
    Durable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    Written,
    /// Nothing was written because some guards do not hold. For each of these guards: its position in the commit, and
    /// the current record.
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
    /// A page of a set: a few hundred records in any order, from the beginning or after the cursor of another page. A
    /// record that exists all the time while the pages are read is on at least one of them.
    Set(Set, Option<Cursor>),
    /// Entries of an index from `from` (inclusive) to `to` (exclusive). `None` means no limit.
    Entries {
        index: Index,
        from: Vec<u8>,
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

/// Number of entries to ask for to get a whole index: more than any index has.
const WHOLE: usize = 10_000_000;

impl Question {
    /// Asks for all entries of an index.
    pub const fn whole(index: Index) -> Self {
        Self::Entries { index, from: Vec::new(), to: None, order: Order::Ascending, limit: WHOLE }
    }

    /// Asks whether an index has this entry.
    pub fn entry(index: Index, entry: &[u8]) -> Self {
        let (from, to) = (entry.to_vec(), Some([entry, &[0][..]].concat()));
        Self::Entries { index, from, to, order: Order::Ascending, limit: 1 }
    }
}

/// Position after a page of a set.
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
    /// The records with the requested names, in the same order.
    Records(Vec<Option<Record>>),
    /// A page of a set, and the cursor of the next page; `None` on the last page.
    Set(Vec<(Vec<u8>, Record)>, Option<Cursor>),
    /// Entries in the requested order.
    Entries(Vec<Vec<u8>>),
    /// Values with their numbers, in the requested order.
    Values(Vec<(u64, Vec<u8>)>),
}

/// Servers of a backend that are down while others serve, each with a reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingServers(pub Vec<String>);

/// A period during which the same server carries out all commits of a space. The server of the next term may lack some
/// of these commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Term(pub u64);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The backend did not answer. The commit may have taken effect, or may still take effect.
    #[error("{0}")]
    Unknown(String),
    /// The backend has done nothing.
    #[error("{0}")]
    NotDone(String),
    /// The backend holds data that no version of this program writes.
    #[error("{0}")]
    Damaged(String),
}

/// A database that compares and writes records. The commits of a space take effect one after another. After a commit
/// has been answered, the caller uses [`Records::settle`] to wait until it is as durable as required.
#[async_trait]
pub trait Records: Send + Sync + 'static {
    /// Returns the database's name for spans.
    fn system(&self) -> &'static str;

    /// Answers questions about a space. All answers are from the same moment.
    async fn read(&self, space: &Space, questions: Vec<Question>) -> Result<Vec<Answer>, Failure>;

    /// Writes everything if every guard holds, and otherwise nothing. It is safe to send a commit twice if it changes a
    /// record that one of its guards names: the second time, this guard does not hold.
    async fn commit(&self, space: &Space, commit: Commit) -> Result<Committed, Failure>;

    /// Returns the recommended maximum number of words in a commit, as [`Commit::words`] counts them. The backend
    /// accepts larger commits too, up to a maximum of its own. It refuses a commit above this maximum before it writes
    /// anything.
    fn most_words(&self) -> usize {
        MOST_WORDS
    }

    /// Lists all places of all spaces, to copy a backend that nobody is using. Other calls may have to wait meanwhile.
    async fn places(&self) -> Result<Vec<(Space, Place)>, Failure>;

    /// Returns the current term of the space.
    async fn term(&self, _space: &Space) -> Term {
        Term::default()
    }

    /// Waits until the answered commits of a space are this durable, without blocking other commits. Callers wait
    /// before they answer a change. They also wait before they answer that a change had been made before, because the
    /// call that made the change may have failed while it waited for durability. `since` is the term that the caller
    /// read before the commits. Fails with [`Failure::Unknown`] if the backend cannot tell, or if that term is over.
    async fn settle(&self, _space: &Space, _durability: Durability, _since: Term) -> Result<(), Failure> {
        Ok(())
    }

    /// Succeeds if at least one server answers and has loaded its data. Returns the servers that do not answer or are
    /// still loading.
    async fn ping(&self) -> Result<MissingServers, Failure> {
        Ok(MissingServers::default())
    }

    /// Returns by how many milliseconds our clock is ahead of the backend's clock; `None` if the backend has no clock
    /// of its own. Fails while the backend loads its data.
    async fn clock_skew(&self) -> Result<Option<i64>, Failure> {
        Ok(None)
    }

    /// Returns whether the store is so full that only holds and captures may use the remaining space. The answer may be
    /// a second old. It is always `false` for a backend that knows no limit.
    async fn is_nearly_full(&self) -> Result<bool, Failure> {
        Ok(false)
    }

    /// Returns which share of the fullest server's memory, or of the disk, is used, from 0 to 1. `None` if there is no
    /// limit.
    async fn used_ratio(&self) -> Result<Option<f64>, Failure> {
        Ok(None)
    }

    /// Returns warnings that say which failures answered writes may not survive, and how to change that.
    async fn persistence_warnings(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Returns the times at which a server was replaced, in milliseconds since 1970, earliest first. Commits that were
    /// answered after such a time may have been lost with that server. The numbers of the lost values may have been
    /// used again.
    async fn losses(&self) -> Result<Vec<i64>, Failure> {
        Ok(Vec::new())
    }

    /// Writes something small to every server, without changing any data. Fails if all servers refuse the write, for
    /// lack of space or another reason. Otherwise returns the servers that refuse.
    async fn try_write(&self) -> Result<MissingServers, Failure> {
        Ok(MissingServers::default())
    }
}
