//! The repository itself: its structure, documents and releases, and the test harness.

pub(crate) mod containers;
pub(crate) mod deployments;
pub(crate) mod documents;
pub(crate) mod harness;
pub(crate) mod releasing;
pub(crate) mod structure;
pub(crate) mod upstream;
