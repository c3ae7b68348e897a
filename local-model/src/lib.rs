//! The demo model behind the OpenAI chat API, so that a first run answers from real weights.
//!
//! A [`Model`] is loaded; an [`Engine`] runs it on one thread, which writes all answers side by side, token by token;
//! [`router`] speaks HTTP. The weights are part of the program. They are a demo: see [`about`].

mod engine;
mod grammar;
mod http;
mod model;
mod nn;
mod output;
mod prompt;
#[cfg(test)]
mod reference;
mod sampler;
mod tokenizer;
mod transformer;
mod weights;

pub use engine::{Engine, EngineOptions};
pub use http::router;
pub use model::Model;

/// Description of the shipped model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Name under which it is served.
    pub name: &'static str,
    /// Tokens that prompt and answer together may have.
    pub context_tokens: usize,
    /// Description of its abilities and limits, in one sentence.
    pub sentence: &'static str,
}

/// Describes the shipped model, wherever it is offered.
pub const fn about() -> About {
    About {
        name: "tiny-demo",
        context_tokens: 2048,
        sentence: "A demo model of 2.6 million parameters, trained from templates to try the service with: it is \
                   no assistant, and most of what it says beyond them is wrong.",
    }
}
