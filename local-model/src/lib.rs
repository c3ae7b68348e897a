//! The demo model behind the OpenAI chat API, so that a first run answers from real weights.
//!
//! An [`Engine`] answers requests side by side, one token of each in turn; [`router`] speaks HTTP. The weights are part of the
//! program, and a demo: see [`DESCRIPTION`].

mod engine;
mod grammar;
mod http;
mod output;
mod prompt;
mod sampler;
mod tokenizer;

pub use engine::Engine;
pub use http::router;
pub use local_model_transformer::CONTEXT_TOKENS;

/// Name under which the shipped model is served.
pub const NAME: &str = "tiny-demo";
/// Abilities and limits of the shipped model, in one sentence.
pub const DESCRIPTION: &str = "A demo model of 2.6 million parameters, trained from templates to try the service with: it is \
                               no assistant, and most of what it says beyond them is wrong.";
