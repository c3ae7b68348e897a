//! Pages that report what happened: events, webhooks, alerts, and problems.

pub(crate) mod alerts;
pub(crate) mod events;
pub(crate) mod trouble;
pub(crate) mod webhooks;
