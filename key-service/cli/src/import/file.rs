//! Files to import.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use anyhow::Context as _;
use shared::bounded_file;

/// UTF-8's byte order mark.
const BYTE_ORDER: &[u8] = "\u{feff}".as_bytes();

pub(crate) fn open(file: &Path) -> anyhow::Result<BufReader<File>> {
    let opened =
        bounded_file::open(file).with_context(|| format!("--file: cannot open {}", file.display()))?;
    let mut opened = BufReader::new(opened);
    // Some editors start a file with a byte order mark.
    if opened.fill_buf().is_ok_and(|begin| begin.starts_with(BYTE_ORDER)) {
        opened.consume(BYTE_ORDER.len());
    }
    Ok(opened)
}

/// Returns the name of a file for messages.
pub(crate) fn name(file: &Path) -> String {
    file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Read};

    use super::*;

    #[test]
    fn a_file_begins_behind_its_mark_of_byte_order() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("file.json");
        for (written, read) in [("\u{feff}{}", "{}"), ("{}", "{}"), ("", ""), ("\u{feff}", "")] {
            fs::write(&file, written).unwrap();
            let mut text = String::new();
            open(&file).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, read);
        }
    }
}
