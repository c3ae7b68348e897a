//! Model servers: the dialect of each kind, their faults, and how an upstream is chosen.

pub(crate) mod adapters;
pub(crate) mod corpus;
pub(crate) mod failures;
pub(crate) mod natives;
pub(crate) mod reach;
pub(crate) mod returning;
pub(crate) mod routing;
