//! Masters: one, or those of a cluster. Each has its own connection, so that one that is away holds up no other.

pub(super) mod cluster;
mod durability;
pub(super) mod server;
pub(super) mod serving;
mod slots;

pub(super) use self::durability::Wanted;
