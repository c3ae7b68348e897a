//! Access to the management API: management keys, and what a caller may govern.

pub mod governor;
pub mod management_keys;
