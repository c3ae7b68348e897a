//! Management of keys: who may do what, and which events receivers get.

pub(crate) mod credentials;
pub(crate) mod management;
pub(crate) mod moving;
pub(crate) mod scopes;
pub(crate) mod webhooks;
