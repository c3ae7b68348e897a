//! The shipped model: network and tokenizer, which are part of the program.

use std::sync::Arc;

use crate::{tokenizer::Tokenizer, transformer::Transformer, weights::Weights};

const CONFIG: &[u8] = include_bytes!("../weights/config.json");
const WEIGHTS: &[u8] = include_bytes!("../weights/model.safetensors");
const TOKENIZER: &[u8] = include_bytes!("../weights/tokenizer.json");

/// Loaded model.
pub struct Model {
    pub(crate) transformer: Transformer,
    pub(crate) tokenizer: Arc<Tokenizer>,
}

impl Model {
    /// Loads the shipped model, which takes some milliseconds.
    pub fn shipped() -> anyhow::Result<Self> {
        let transformer = Transformer::load(CONFIG, &Weights::new(WEIGHTS)?)?;
        Ok(Self { transformer, tokenizer: Arc::new(Tokenizer::load(TOKENIZER)?) })
    }
}
