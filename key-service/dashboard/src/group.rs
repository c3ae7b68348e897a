//! Groups: the list, the page of a group, and actions on groups.

pub(crate) mod acts;
pub(crate) mod groups;
