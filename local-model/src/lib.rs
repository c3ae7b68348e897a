//! The demo model behind the OpenAI chat API, so that a first run answers from real weights.
//!
//! An [`Engine`] answers requests side by side, one token of each in turn; [`router`] speaks HTTP. The weights are part of the
//! program, and a demo: see [`DESCRIPTION`].

mod answer;
mod demo;
mod engine;
mod fill;
mod http;
mod output;
mod prompt;
mod reader;
mod sampler;
mod tokenizer;

pub use demo::{DESCRIPTION, NAME};
pub use engine::Engine;
pub use http::router;
pub use local_model_transformer::CONTEXT_TOKENS;
