//! Pages that report what happened: events, webhooks, and problems.

pub(crate) mod events;
pub(crate) mod trouble;
pub(crate) mod webhooks;
