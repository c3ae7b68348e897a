//! Keys, groups and webhooks, with what their operations and lists have in common.

pub mod children;
pub mod governed;
pub mod groups;
pub(crate) mod keys;
pub mod listing;
mod moving;
pub mod once;
pub mod reach;
pub mod rotation;
pub mod webhooks;
