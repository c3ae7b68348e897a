//! The management of keys: who may do what, and which events are sent to receivers.

pub(crate) mod credentials;
pub(crate) mod management;
pub(crate) mod moving;
pub(crate) mod scopes;
pub(crate) mod webhooks;
