//! Errors of loading a model.

use std::{io, path::PathBuf};

/// Reason for which a model could not be loaded, grouped by what is at fault.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file is missing, or may not be read.
    #[error("cannot read {path}")]
    File {
        /// Which one.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("the model's files are broken: {0}")]
    Broken(String),
    /// The model needs something that this program cannot do. The sentence names it, and what would be supported.
    #[error("this model cannot be served: it has {0}")]
    Unsupported(String),
    /// The tokenizer is unreadable, or it lacks a token that the program relies on.
    #[error("the model's tokenizer is unusable: {0}")]
    Tokenizer(String),
    /// The chat template does not compile.
    #[error("the model's chat template is unusable")]
    Template(#[from] minijinja::Error),
    /// The operating system gave no threads to run the model on.
    #[error("there is no thread to run the model on")]
    Thread(#[source] io::Error),
}
