//! Trained weights, read from the safetensors format.

use anyhow::{Context, ensure};
use safetensors::{Dtype, SafeTensors};

use crate::nn::{LANES, Linear};

/// Tensors by name, each widened from bf16 when it is read.
pub(crate) struct Weights<'a>(SafeTensors<'a>);

impl<'a> Weights<'a> {
    pub(crate) fn new(file: &'a [u8]) -> anyhow::Result<Self> {
        Ok(Self(SafeTensors::deserialize(file).context("the model's weights")?))
    }

    pub(crate) fn vector(&self, name: &str, length: usize) -> anyhow::Result<Vec<f32>> {
        self.read(name, &[length])
    }

    pub(crate) fn linear(&self, name: &str, inputs: usize, outputs: usize) -> anyhow::Result<Linear> {
        let is_even = inputs.is_multiple_of(LANES) && outputs.is_multiple_of(LANES);
        ensure!(is_even, "the layer {name} has no width that is a multiple of {LANES}");
        Ok(Linear::new(&self.read(name, &[outputs, inputs])?, inputs))
    }

    fn read(&self, name: &str, shape: &[usize]) -> anyhow::Result<Vec<f32>> {
        let tensor = self.0.tensor(&format!("{name}.weight")).with_context(|| name.to_owned())?;
        let is_expected = tensor.dtype() == Dtype::BF16 && tensor.shape() == shape;
        ensure!(is_expected, "the tensor {name} is {:?} of {:?}", tensor.dtype(), tensor.shape());
        // A bf16 is the upper half of an f32.
        let widen = |&[low, high]: &[u8; 2]| f32::from_le_bytes([0, 0, low, high]);
        Ok(tensor.data().as_chunks::<2>().0.iter().map(widen).collect())
    }
}
