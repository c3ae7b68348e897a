//! Money. Limits hold and are renewed, and each token that is served is billed once.

pub(crate) mod budgets;
pub(crate) mod caps;
pub(crate) mod counting;
pub(crate) mod grants;
pub(crate) mod leases;
pub(crate) mod leaving;
pub(crate) mod payments;
pub(crate) mod prices;
pub(crate) mod raises;
pub(crate) mod unread;
pub(crate) mod usage;
pub(crate) mod wallets;
pub(crate) mod windows;
