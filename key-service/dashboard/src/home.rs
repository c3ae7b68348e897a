//! The first page, search, and *Try it*.

pub(crate) mod find;
mod jumps;
pub(crate) mod overview;
pub(crate) mod trouble;
pub(crate) mod try_it;
