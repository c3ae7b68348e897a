//! The shipped model: network and tokenizer, which are part of the program.

use std::sync::Arc;

use crate::{tokenizer::Tokenizer, transformer::Transformer, weights::Weights};

const CONFIG: &[u8] = include_bytes!("../weights/config.json");
const WEIGHTS: &[u8] = include_bytes!("../weights/model.safetensors");
const TOKENIZER: &[u8] = include_bytes!("../weights/tokenizer.json");

pub(crate) struct Model {
    pub(crate) transformer: Transformer,
    pub(crate) tokenizer: Arc<Tokenizer>,
}

impl Model {
    /// Loads the shipped model, which takes some milliseconds.
    pub(crate) fn shipped() -> anyhow::Result<Self> {
        let transformer = Transformer::load(CONFIG, &Weights::new(WEIGHTS)?)?;
        Ok(Self { transformer, tokenizer: Arc::new(Tokenizer::load(TOKENIZER)?) })
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::{
        prompt::{self, Message, Prompt, Tool},
        transformer::KvCache,
    };

    /// Prompt and greedy answer of PyTorch, which `training/reference.py` recorded.
    #[derive(Deserialize)]
    struct Recorded {
        messages: Vec<Message>,
        #[serde(default)]
        tools: Vec<Tool>,
        prompt: String,
        prompt_tokens: usize,
        answer_tokens: Vec<u32>,
    }

    #[test]
    fn prompts_are_those_of_the_training_and_the_likeliest_tokens_those_of_pytorch() {
        let Model { transformer, tokenizer } = Model::shipped().unwrap();
        let recorded: Vec<Recorded> = serde_json::from_str(include_str!("../tests/reference.json")).unwrap();
        for case in recorded {
            let prompt = prompt::encode(&tokenizer, 2048, &case.messages, &case.tools);
            let Ok(Prompt { tokens, .. }) = prompt else { panic!("it fits: {}", case.prompt) };
            let bytes = tokens.iter().flat_map(|&token| tokenizer.bytes(token)).copied().collect();
            assert_eq!(String::from_utf8(bytes).as_ref(), Ok(&case.prompt));
            assert_eq!(tokens.len(), case.prompt_tokens);
            let mut cache = KvCache::default();
            let mut logits = transformer.forward(&tokens, &mut cache);
            for token in case.answer_tokens {
                assert!(logits.iter().all(|&logit| logit <= logits[token as usize]), "{}", case.prompt);
                logits = transformer.forward(&[token], &mut cache);
            }
        }
    }
}
