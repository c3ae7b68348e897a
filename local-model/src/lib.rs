//! Language models behind the OpenAI chat API: a tiny one, so that a first run answers from real weights, or one from disk.
//!
//! A [`Model`] is loaded; an [`Engine`] runs it on one thread that writes all answers side by side, token by token;
//! [`router`] speaks HTTP. The weights of the tiny one are part of the program. They are a demo: see [`about`].

mod answer;
mod arithmetic;
mod decoder;
mod dice;
mod engine;
mod grammar;
mod http;
mod load_error;
mod model;
mod prompt;
#[cfg(test)]
mod reference;
mod sampler;
mod shape;
mod threads;
mod vocabulary;
mod weights;

pub use engine::{Engine, Options};
pub use http::router;
pub use model::Model;
pub use weights::LoadError;

/// What the shipped model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// The name under which it is served.
    pub name: &'static str,
    /// So many numbers were trained.
    pub parameters: usize,
    /// Prompt and answer together hold at most so many tokens.
    pub context_tokens: usize,
    /// What to expect of it, in one sentence.
    pub sentence: &'static str,
}

/// What the shipped model is, to be said wherever it is offered.
pub const fn about() -> About {
    About {
        name: "tiny-demo",
        parameters: 2_632_128,
        context_tokens: 2048,
        sentence: "A demo model of 2.6 million parameters, trained from templates to try the service with: it is \
                   no assistant, and most of what it says beyond them is wrong.",
    }
}
