//! Rewrites answers from upstreams for the gateway's clients.
//!
//! Everything here is an allow-list. Identifiers, model names and fingerprints of upstreams are replaced, and members
//! that the OpenAI API does not have are dropped. Texts are copied as the upstream spelled them. Types with such texts
//! have no `Debug`, so that no log can show a text.

mod dialect;
mod fold;
mod folded;
mod generation;
mod pieces;
mod reader;
mod rewriter;
pub mod schema;
mod sse;
mod stream;
mod usage;
mod whole;
mod writer;

pub use dialect::messages::message_error;
pub use fold::Fold;
pub use folded::{Folded, NoAnswer, whole_as_chat};
pub use generation::{Generation, Settled};
pub use pieces::{
    nonsense::Nonsense,
    oddity::{Oddities, Oddity},
    parts::OutputSize,
};
pub use reader::AnswerReader;
pub use reply::carried::ServerId;
pub use sse::{
    Decoder,
    payload::{Payload, PayloadEnds},
};
pub use stream::{Chunk, Event};
pub use usage::{MOST_TOKENS, Reported};
pub use whole::Completion;
pub use writer::StreamWriter;

#[cfg(test)]
mod tests;
