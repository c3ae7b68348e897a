//! Access to the management API: management keys, and the rights of callers.

pub mod governor;
pub mod management_keys;
pub mod operator_keys;
