//! Model servers: each kind's own dialect, their faults, and how one is chosen.

pub(crate) mod adapters;
pub(crate) mod corpus;
pub(crate) mod failures;
pub(crate) mod natives;
pub(crate) mod reach;
pub(crate) mod returning;
pub(crate) mod routing;
