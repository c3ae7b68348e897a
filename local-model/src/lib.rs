//! The demo model behind OpenAI's chat API, so that answers come from real weights already on the first run.
//!
//! An [`Engine`] answers requests at the same time: each of them in turn gets one token. [`router`] provides HTTP. The
//! weights are part of the program, and are only a demo: see [`DESCRIPTION`].

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
