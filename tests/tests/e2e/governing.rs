//! The management of keys: who may do what, which events are sent to receivers, and how people are warned.

mod alerts;
pub(crate) mod credentials;
pub(crate) mod management;
pub(crate) mod moving;
pub(crate) mod scopes;
pub(crate) mod webhooks;
