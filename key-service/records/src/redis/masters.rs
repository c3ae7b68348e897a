//! The masters: a single one, or all masters of a cluster. Each has its own connection, so that a master that is away
//! delays no other.

pub(super) mod cluster;
mod durability;
pub(super) mod server;
pub(super) mod serving;
mod slots;

pub(super) use self::durability::Wanted;
