//! Writes a file completely or not at all, and never overwrites one.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use shared::clock::{Clock, random_bytes};

/// Fails if the file exists already, or if its folder does not.
pub(super) fn must_be_new(path: &Path) -> anyhow::Result<()> {
    if fs::symlink_metadata(path).is_ok() {
        bail!("{}", taken(path));
    }
    let folder = folder(path);
    if !folder.is_dir() {
        bail!("--out: there is no folder {}; create it, or name another file", folder.display());
    }
    Ok(())
}

pub(super) fn publish(path: &Path, text: &str, clock: &dyn Clock) -> anyhow::Result<()> {
    let name = path.file_name().with_context(|| format!("--out: {} is not a file name", path.display()))?;
    let random = hex::encode(random_bytes::<8>(clock));
    let draft = folder(path).join(format!(".{}.{random}.tmp", name.to_string_lossy()));
    match write(path, &draft, text) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => bail!("{}", taken(path)),
        Err(e) => Err(e).with_context(|| format!("--out: cannot write {}", path.display())),
    }
}

fn write(path: &Path, draft: &Path, text: &str) -> io::Result<()> {
    let written = File::create_new(draft).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    // Unlike a rename, a hard link fails if the name is taken.
    let published = written.and_then(|()| fs::hard_link(draft, path));
    let removed = fs::remove_file(draft);
    published.and(removed)
}

fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        Some(_) | None => PathBuf::from("."),
    }
}

fn taken(path: &Path) -> String {
    format!("{} exists already and is not overwritten; name another file with --out", path.display())
}

#[cfg(test)]
mod tests {
    use shared::clock::System;

    use super::*;

    #[test]
    fn a_file_is_written_whole_and_never_over_another() {
        let place =
            std::env::temp_dir().join(format!("faregate-init-{}", hex::encode(random_bytes::<8>(&System))));
        fs::create_dir(&place).unwrap();
        let file = place.join("models.toml");
        must_be_new(&file).unwrap();
        publish(&file, "one", &System).unwrap();
        for error in [must_be_new(&file).unwrap_err(), publish(&file, "two", &System).unwrap_err()] {
            assert!(error.to_string().ends_with("name another file with --out"), "{error}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "one");
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1, "no draft is left");
        let nowhere = must_be_new(&place.join("missing/models.toml")).unwrap_err();
        assert!(nowhere.to_string().contains("there is no folder"), "{nowhere}");
        // A dangling symlink also occupies its name.
        std::os::unix::fs::symlink("nowhere", place.join("link.toml")).unwrap();
        assert!(must_be_new(&place.join("link.toml")).is_err());
        fs::remove_dir_all(place).unwrap();
    }
}
