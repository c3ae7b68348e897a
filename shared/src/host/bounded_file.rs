//! Reads files that are named in settings, up to a maximum size. If a setting names something else, such as an endless
//! device, this is an error and does not use up the memory.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileTypeExt,
    path::Path,
};

/// Opens a file or a pipe. Devices are refused, because they may be endless.
pub fn open(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() || kind.is_fifo() || kind.is_dir() {
        // If the path is a folder, reading from it fails with the system's own message.
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "is neither a file nor a pipe"))
}

/// Reads a text from a file or a pipe. The text may have at most `most` bytes.
pub fn read_text(path: &Path, most: usize) -> io::Result<String> {
    let mut bytes = Vec::new();
    open(path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("is larger than {most} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;
    use crate::timing::clock::{System, random_bytes};

    #[test]
    fn a_file_or_a_pipe_is_read_to_its_bound_and_nothing_else_is_read() {
        let name = format!("faregate-bounded-{}", u64::from_be_bytes(random_bytes(&System)));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        let said = |path: &Path| read_text(path, 5).map_err(|e| e.to_string());
        let (file, pipe) = (folder.join("file"), folder.join("pipe"));
        fs::write(&file, "12345").unwrap();
        assert_eq!(said(&file), Ok("12345".into()));
        fs::write(&file, "123456").unwrap();
        assert_eq!(said(&file), Err("is larger than 5 bytes".into()));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let into = pipe.clone();
        let writer = std::thread::spawn(move || fs::write(into, "piped"));
        assert_eq!(said(&pipe), Ok("piped".into()));
        writer.join().unwrap().unwrap();
        for device in ["/dev/zero", "/dev/null", "/dev/urandom"] {
            assert_eq!(said(Path::new(device)), Err("is neither a file nor a pipe".into()), "{device}");
        }
        for unreadable in [&folder, &folder.join("none")] {
            assert!(said(unreadable).is_err(), "{}", unreadable.display());
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
