//! Commands that manage access: members, operators, management keys and operator keys.

pub(crate) mod management_keys;
pub(crate) mod members;
pub(crate) mod operator_keys;
pub(crate) mod operators;
