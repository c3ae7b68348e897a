//! The repository itself: its structure, its documents, its releases, and the harness of these tests.

pub(crate) mod containers;
pub(crate) mod deployments;
pub(crate) mod documents;
pub(crate) mod harness;
pub(crate) mod releasing;
pub(crate) mod structure;
pub(crate) mod upstream;
