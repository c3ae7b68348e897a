//! Stores: what they preserve when a program is killed or a disk is full, and how their content moves to another store.

pub(crate) mod backups;
pub(crate) mod crashes;
pub(crate) mod events;
pub(crate) mod full_disk;
pub(crate) mod transfers;
pub(crate) mod upgrades;
