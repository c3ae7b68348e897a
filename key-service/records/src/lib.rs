//! What the store needs from a backend, which only compares and writes records, and the backends themselves.

pub mod copy;
mod latency;
#[cfg(any(test, feature = "testing"))]
pub mod maps;
mod name_bytes;
mod records;
pub mod redis;
#[cfg(any(test, feature = "testing"))]
pub mod servers;
pub mod sqlite;
#[cfg(test)]
mod suite;

pub use self::{
    latency::timed,
    name_bytes::NameBytes,
    records::{
        Answer, Commit, Committed, Cursor, Durability, Failure, Guard, Index, Log, MOST_WORDS,
        MissingServers, Name, Order, Place, Question, Record, Records, Revision, Set, Space, Term, Write,
    },
};
