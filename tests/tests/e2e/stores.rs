//! Stores: what they keep when a program is killed, when a disk is full, and on the way to another one.

pub(crate) mod backups;
pub(crate) mod crashes;
pub(crate) mod events;
pub(crate) mod full_disk;
pub(crate) mod transfers;
pub(crate) mod upgrades;
