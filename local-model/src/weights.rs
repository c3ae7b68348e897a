//! What is shipped in the program: the weights, their shape, the tokenizer and the chat template.

use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use crate::arithmetic::Matrix;

/// The vocabulary and the rules that cut text into it, in the format of the `tokenizers` library.
pub(crate) const TOKENIZER: &[u8] = include_bytes!("../weights/tokenizer.json");
/// How messages become a prompt, in Jinja.
pub(crate) const CHAT_TEMPLATE: &str = include_str!("../weights/chat_template.jinja");
const CONFIG: &[u8] = include_bytes!("../weights/config.json");
const TENSORS: &[u8] = include_bytes!("../weights/model.safetensors");

/// The numbers that describe a Llama, under the names that its `config.json` gives them.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Shape {
    pub(crate) vocab_size: usize,
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) num_hidden_layers: usize,
    pub(crate) num_attention_heads: usize,
    pub(crate) num_key_value_heads: usize,
    pub(crate) head_dim: usize,
    /// Prompt and answer together hold at most so many tokens.
    pub(crate) max_position_embeddings: usize,
    pub(crate) rms_norm_eps: f32,
    pub(crate) rope_theta: f32,
}

/// The trained numbers, by name.
pub(crate) struct Weights(SafeTensors<'static>);

/// Why the model could not be loaded. Everything it needs is inside the program, so all but
/// [`Thread`](Self::Thread) are faults of the build.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// `config.json` does not describe a model.
    #[error("the model's configuration is unreadable")]
    Config(#[source] serde_json::Error),
    /// The weights are not in the safetensors format, or one of them is missing.
    #[error("the model's weights are unreadable")]
    Weights(#[from] safetensors::SafeTensorError),
    /// A tensor has another type or shape than this program computes with.
    #[error("the tensor {0} has an unexpected type or shape")]
    Tensor(String),
    /// `tokenizer.json` does not describe a tokenizer, or it lacks a token that the program relies on.
    #[error("the model's tokenizer is unreadable: {0}")]
    Tokenizer(String),
    /// The chat template does not compile.
    #[error("the model's chat template is unreadable")]
    Template(#[from] minijinja::Error),
    /// The operating system gave no thread to run the model on.
    #[error("there is no thread to run the model on")]
    Thread(#[from] std::io::Error),
}

impl Shape {
    pub(crate) fn shipped() -> Result<Self, LoadError> {
        serde_json::from_slice(CONFIG).map_err(LoadError::Config)
    }
}

impl Weights {
    pub(crate) fn shipped() -> Result<Self, LoadError> {
        Ok(Self(SafeTensors::deserialize(TENSORS)?))
    }

    /// A tensor's numbers in the order in which they are stored. They are widened to f32, since arithmetic in bf16
    /// changes some answers and is slower on a CPU.
    pub(crate) fn numbers(&self, name: &str) -> Result<Vec<f32>, LoadError> {
        let tensor = self.0.tensor(name)?;
        if tensor.dtype() != Dtype::BF16 {
            return Err(LoadError::Tensor(name.to_owned()));
        }
        let (pairs, _) = tensor.data().as_chunks::<2>();
        // A bf16 is the upper half of an f32.
        Ok(pairs.iter().map(|&pair| f32::from_bits(u32::from(u16::from_le_bytes(pair)) << 16)).collect())
    }

    /// A linear layer from `inputs` to `outputs` numbers.
    pub(crate) fn matrix(&self, name: &str, inputs: usize, outputs: usize) -> Result<Matrix, LoadError> {
        if self.0.tensor(name)?.shape() != [outputs, inputs] {
            return Err(LoadError::Tensor(name.to_owned()));
        }
        Matrix::new(&self.numbers(name)?, inputs).ok_or_else(|| LoadError::Tensor(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_counts_the_parameters_that_are_used() {
        let weights = Weights::shipped().unwrap();
        let of_text = weights.0.iter().filter(|(name, _)| !name.starts_with("vision."));
        let count: usize = of_text.map(|(_, tensor)| tensor.shape().iter().product::<usize>()).sum();
        assert_eq!(count, crate::about().parameters);
    }
}
