//! Bills and budgets, with several gateways and key-services.

pub(crate) mod bills;
pub(crate) mod budgets;
pub(crate) mod natives;
pub(crate) mod spool;
pub(crate) mod tokens;
