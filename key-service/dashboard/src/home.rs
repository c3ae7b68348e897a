//! The first page, and what leads on from any page.

pub(crate) mod find;
pub(crate) mod overview;
pub(crate) mod trouble;
pub(crate) mod try_it;
