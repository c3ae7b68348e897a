//! The demo model behind the OpenAI chat API, so that a first run answers from real weights.
//!
//! An [`Engine`] answers requests side by side, one token of each in turn; [`router`] speaks HTTP. The weights are part of the
//! program, and a demo: see [`about`].

mod engine;
mod grammar;
mod http;
mod model;
mod nn;
mod output;
mod prompt;
mod sampler;
mod tokenizer;
mod transformer;
mod weights;

pub use engine::Engine;
pub use http::router;

/// Description of the shipped model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Name under which the model is served.
    pub name: &'static str,
    /// Tokens that prompt and answer together may have.
    pub context_tokens: usize,
    /// Abilities and limits of the model, in one sentence.
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
