//! Files to import.

use std::{fs::File, io::BufReader, path::Path};

use anyhow::Context as _;
use shared::bounded_file;

pub(crate) fn open(file: &Path) -> anyhow::Result<BufReader<File>> {
    let opened =
        bounded_file::open(file).with_context(|| format!("--file: cannot open {}", file.display()))?;
    Ok(BufReader::new(opened))
}

/// Name of a file in messages.
pub(crate) fn name(file: &Path) -> String {
    file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}
