//! The masters: either a single master, or all masters of a cluster. Each master has a connection of its own, so a
//! master that is away does not delay calls to others.

pub(super) mod cluster;
mod durability;
pub(super) mod server;
pub(super) mod serving;
mod slots;

pub(super) use self::durability::Wanted;
