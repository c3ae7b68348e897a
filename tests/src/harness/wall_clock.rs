//! Wall clocks for single processes. They may differ from the machine's clock, and may jump.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Folder of libraries, with a subfolder for each architecture.
const LIBRARIES: &str = "/usr/lib";
/// Path within the subfolder of the library that replaces the system's clock.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// Wall clock of one process, some seconds ahead of the machine's. The process still uses the machine's monotonic
/// clock.
pub struct WallClock {
    file: PathBuf,
}

impl WallClock {
    /// Creates a clock that is this many seconds ahead of the machine's. Its file is in this folder.
    pub(super) fn ahead(folder: &Path, seconds: i64) -> Self {
        let clock = Self { file: folder.join("clock") };
        clock.set(seconds);
        clock
    }

    /// Sets the clock to this many seconds ahead of the machine's (negative: behind).
    pub fn set(&self, seconds: i64) {
        // The file is replaced atomically, since the process may read it at any time.
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{seconds:+}s\n")).unwrap();
        fs::rename(new, &self.file).unwrap();
    }

    /// Returns the environment variables of a process with this clock.
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
