//! A tiny language model behind the OpenAI chat API, so that a first run answers from real weights.
//!
//! [`Engine`] runs the model on one thread that takes turns between requests, token by token; [`router`] speaks HTTP.
//! The weights are part of the program. They are a demo: see [`about`].

mod answer;
mod arithmetic;
mod decoder;
mod dice;
mod engine;
mod grammar;
mod http;
mod prompt;
#[cfg(test)]
mod reference;
mod sampler;
mod vocabulary;
mod weights;

pub use engine::{Engine, Options};
pub use http::{router, serve};
pub use weights::LoadError;

/// What this model is.
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

/// What this model is, to be said wherever it is offered.
pub const fn about() -> About {
    About {
        name: "tiny-demo",
        parameters: 2_632_128,
        context_tokens: 2048,
        sentence: "A demo model of 2.6 million parameters, trained from templates to try the service with: it is \
                   no assistant, and most of what it says beyond them is wrong.",
    }
}
