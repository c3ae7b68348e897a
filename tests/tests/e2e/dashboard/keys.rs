//! Pages of keys and groups.

pub(crate) mod bounds;
pub(crate) mod bulk;
pub(crate) mod groups;
pub(crate) mod management_keys;
pub(crate) mod raises;
pub(crate) mod rotation;
