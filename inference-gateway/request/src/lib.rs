//! Turns a client's request, in any dialect, into the bytes that an upstream reads.
//!
//! No part of a body becomes a JSON tree. Values are borrowed as spelled and checked in place, and the upstream's text
//! is written in one pass, so each byte is copied once. Types with a prompt have no `Debug`, so that no log can show a
//! prompt.

pub mod chat;
mod checked;
mod draft;
pub mod embeddings;
mod forward;
mod hub;
pub mod messages;
mod names;
mod passage;
pub mod responses;
mod sampled;
mod trimmed;

pub use checked::{Request, Room};
pub use draft::ChatTerms;
pub use forward::{
    BodyForm, BodyPieces, CountBody, Forward, ProgressReports, UnwrittenCount, UpstreamParams,
};
pub use sampled::Sampling;
pub use upstream_error::RefusedMembers;

#[cfg(test)]
mod tests;
