//! Services that stop or hang, or that cannot reach each other.

pub(crate) mod away;
pub(crate) mod clocks;
pub(crate) mod late_releases;
pub(crate) mod outages;
pub(crate) mod random_faults;
pub(crate) mod reboots;
pub(crate) mod room;
