use std::{fs, path::Path};

/// Copies a folder with all its contents.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Cuts bytes off the end of a killed server's append-only file.
pub(super) fn tear(data: &Path, bytes: u64) {
    let files = fs::read_dir(data.join("appendonlydir")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    // There is one file, unless Redis was writing a new one.
    let written = files.filter(|file| file.to_string_lossy().ends_with(".incr.aof")).max();
    let file = fs::OpenOptions::new().write(true).open(written.unwrap()).unwrap();
    file.set_len(file.metadata().unwrap().len().saturating_sub(bytes)).unwrap();
}
