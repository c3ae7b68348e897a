//! Secrets: values that cannot be printed, are wiped when dropped, and are compared in constant time.

use std::{fs, io, path::Path};

pub use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

/// Compares two texts in a time that does not depend on where they first differ.
pub fn same(a: &str, b: &str) -> bool {
    a.as_bytes().ct_eq(b.as_bytes()).into()
}

/// Reads a secret from a file, without the line end that editors add.
pub fn read_file(path: &Path) -> io::Result<SecretString> {
    fs::read_to_string(path).map(|text| text.trim_end_matches(['\r', '\n']).into())
}
