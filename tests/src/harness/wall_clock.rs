//! Wall clocks of single processes that differ from the machine's, and step.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Folders of libraries, below which each kind of processor has one of its own.
const LIBRARIES: &str = "/usr/lib";
/// The library that answers for the system's clock, in such a folder.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// The wall clock of one process, so many seconds ahead of the machine's. Its monotonic clock is the machine's.
pub struct WallClock {
    file: PathBuf,
}

impl WallClock {
    /// A clock that is right, kept in this folder.
    pub(super) fn new(folder: &Path) -> Self {
        let clock = Self { file: folder.join("clock") };
        clock.set(0);
        clock
    }

    /// Steps to so many seconds ahead of the machine's clock, or behind it.
    pub fn set(&self, seconds: i64) {
        // In one step: the process may read it at any time.
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{seconds:+}s\n")).unwrap();
        fs::rename(new, &self.file).unwrap();
    }

    /// The environment of the process.
    pub(super) fn env(&self) -> Vec<(&'static str, String)> {
        vec![
            ("LD_PRELOAD", library()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }
}

fn library() -> String {
    let folders = fs::read_dir(LIBRARIES).into_iter().flatten().flatten();
    let found = folders.map(|folder| folder.path().join(LIBRARY)).find(|path| path.is_file());
    let found = found.expect(
        "there is no libfaketime, and these tests need it: run tests/tools/install.sh, or `apt-get install faketime`",
    );
    found.display().to_string()
}
