//! Secrets: values that cannot be printed, are wiped when dropped, and are compared in constant time.

use std::{
    fmt::Write as _,
    fs,
    io::{self, Write},
    path::Path,
};

pub use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

use crate::{
    host::{bounded_file, private_files},
    timing::clock::{Clock, random_bytes},
};

/// Maximum size of a file that holds one secret, in bytes.
const MAX_SECRET: usize = 64 << 10;

/// Compares two texts in constant time.
pub fn same(a: &str, b: &str) -> bool {
    a.as_bytes().ct_eq(b.as_bytes()).into()
}

/// Reads a secret from a file, without a trailing line break.
pub fn read_file(path: &Path) -> io::Result<SecretString> {
    bounded_file::read_text(path, MAX_SECRET).map(|text| text.trim_end_matches(['\r', '\n']).into())
}

/// Reads the secret in a file. A missing file is created first: private, with 256 random bits as hexadecimal digits.
pub fn read_or_make(path: &Path, clock: &dyn Clock) -> io::Result<SecretString> {
    if !path.exists() {
        let draft = path.with_extension(format!("{}.tmp", hexadecimal(&random_bytes::<8>(clock))));
        publish(path, &draft, &hexadecimal(&random_bytes::<32>(clock)))?;
    }
    read_file(path)
}

/// Writes a file completely or not at all, and never over another, so that two processes that make a secret at the same
/// time end up with the same one. The draft's name is random, so that the draft of a dead process disturbs nobody.
fn publish(path: &Path, draft: &Path, text: &str) -> io::Result<()> {
    let mut file = private_files::options().write(true).create_new(true).open(draft)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    let published = fs::hard_link(draft, path);
    fs::remove_file(draft)?;
    match published {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        published => published,
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::timing::clock::System;

    #[test]
    fn a_secret_is_made_once_for_its_owner_alone_whatever_draft_a_dead_process_left() {
        let name = format!("faregate-secret-{}", u64::from_be_bytes(random_bytes(&System)));
        let folder = std::env::temp_dir().join(name);
        private_files::create_folder(&folder).unwrap();
        fs::write(folder.join(format!("pepper.{}.tmp", std::process::id())), "half").unwrap();
        let file = folder.join("pepper");
        let read = || read_or_make(&file, &System).unwrap().expose_secret().to_owned();
        let first = read();
        assert_eq!(first.len(), 64);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read(), first);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "no draft of ours is left");
        fs::remove_dir_all(folder).unwrap();
    }
}
