//! The demo model behind OpenAI's chat API, so that a first run answers from real weights.
//!
//! An [`Engine`] answers requests side by side: each in turn gets one token. [`router`] provides HTTP. The weights are
//! part of the program and only a demo: see [`DESCRIPTION`].

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
