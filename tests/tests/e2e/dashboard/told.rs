//! Pages that tell what happened: events, webhooks, and what is wrong.

pub(crate) mod events;
pub(crate) mod trouble;
pub(crate) mod webhooks;
