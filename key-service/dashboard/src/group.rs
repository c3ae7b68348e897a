//! Groups: their list, the page of each, and what owners do with them.

pub(crate) mod acts;
pub(crate) mod groups;
