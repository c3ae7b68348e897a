//! Services that stop, hang, or lose each other.

pub(crate) mod away;
pub(crate) mod clocks;
pub(crate) mod late_releases;
pub(crate) mod outages;
pub(crate) mod random_faults;
pub(crate) mod reboots;
pub(crate) mod room;
