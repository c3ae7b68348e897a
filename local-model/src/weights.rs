//! The trained numbers of a model, by name, wherever they are stored.

pub(crate) mod gguf;
mod numbers;
pub(crate) mod safetensors;

pub(crate) use self::numbers::{Kind, Tensor, size};
use crate::arithmetic::{Matrix, Precision};
pub use crate::load_error::LoadError;

/// Numbers below this count are widened when they are loaded: the model then takes as much memory as it may, and is faster.
const WIDENED: usize = 16 << 20;

impl LoadError {
    /// A tensor's bytes are not those of its shape.
    fn misshapen(name: &str) -> Self {
        Self::Broken(format!("the tensor {name} has not the size of its shape"))
    }
}

/// Where tensors come from. Names are those of the Hugging Face layout.
pub(crate) trait Source {
    /// The tensor of this name, if there is one.
    fn tensor(&self, name: &str) -> Result<Option<Tensor>, LoadError>;

    /// The names of all tensors.
    fn names(&self) -> Vec<String>;

    /// So many numbers were trained, roughly: it decides how they are kept.
    fn numbers(&self) -> usize;
}

/// A source, and which of its tensors were used.
pub(crate) struct Weights<'a> {
    source: &'a dyn Source,
    used: Vec<String>,
    counted: usize,
}

impl<'a> Weights<'a> {
    pub(crate) fn new(source: &'a dyn Source) -> Self {
        Self { source, used: Vec::new(), counted: 0 }
    }

    /// A list of so many numbers.
    pub(crate) fn list(&mut self, name: &str, length: usize) -> Result<Vec<f32>, LoadError> {
        self.optional_list(name, length)?.ok_or_else(|| missing(name))
    }

    /// A list of so many numbers, where the model has it.
    pub(crate) fn optional_list(&mut self, name: &str, length: usize) -> Result<Option<Vec<f32>>, LoadError> {
        let Some(tensor) = self.take(name)? else { return Ok(None) };
        if tensor.shape != [length] {
            return Err(misshapen(name, &tensor, &[length]));
        }
        Ok(Some(tensor.rows(0, 1)))
    }

    /// A linear layer from `inputs` to `outputs` numbers.
    pub(crate) fn matrix(&mut self, name: &str, inputs: usize, outputs: usize) -> Result<Matrix, LoadError> {
        self.first_rows(name, inputs, outputs, outputs)
    }

    /// The first `outputs` of the `rows` of a linear layer.
    pub(crate) fn first_rows(
        &mut self,
        name: &str,
        inputs: usize,
        rows: usize,
        outputs: usize,
    ) -> Result<Matrix, LoadError> {
        let tensor = self.take(name)?.ok_or_else(|| missing(name))?;
        if tensor.shape != [rows, inputs] {
            return Err(misshapen(name, &tensor, &[rows, inputs]));
        }
        let precision =
            if self.source.numbers() <= WIDENED { Precision::F32 } else { tensor.kind.precision() };
        Ok(Matrix::new(inputs, outputs, precision, |first, count| tensor.rows(first, count)))
    }

    /// Refuses a model that has parts which were not used: it would be computed wrongly.
    pub(crate) fn all_used(&self) -> Result<(), LoadError> {
        let ignored = |name: &str| name.starts_with("vision.") || name.ends_with("rotary_emb.inv_freq");
        let unused = |name: &String| !ignored(name) && !self.used.contains(name);
        match self.source.names().into_iter().find(unused) {
            Some(name) => Err(LoadError::Unsupported(format!(
                "the tensor {name}; supported: those of {}",
                crate::shape::SUPPORTED.join(", ")
            ))),
            None => Ok(()),
        }
    }

    /// Says that a tensor may be there without being used.
    pub(crate) fn ignore(&mut self, name: &str) {
        self.used.push(name.to_owned());
    }

    /// So many numbers were trained, of those that are used.
    pub(crate) fn numbers(&self) -> usize {
        self.counted
    }

    fn take(&mut self, name: &str) -> Result<Option<Tensor>, LoadError> {
        self.used.push(name.to_owned());
        let tensor = self.source.tensor(name)?;
        self.counted += tensor.iter().map(|tensor| tensor.shape.iter().product::<usize>()).sum::<usize>();
        Ok(tensor)
    }
}

fn missing(name: &str) -> LoadError {
    LoadError::Broken(format!("the tensor {name} is missing"))
}

fn misshapen(name: &str, tensor: &Tensor, expected: &[usize]) -> LoadError {
    LoadError::Broken(format!("the tensor {name} has the shape {:?}, not {expected:?}", tensor.shape))
}
