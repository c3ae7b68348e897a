//! Files and folders that only the owner may read.

use std::{
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

const FILE: u32 = 0o600;
const FOLDER: u32 = 0o700;

/// Returns options for opening a file. If that creates the file, it is private.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE);
    options
}

/// Creates a folder and its missing parents, each private. An existing folder stays unchanged.
pub fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER).create(path)
}

/// Makes an existing file private, since an earlier version created it readable for everyone.
pub fn narrow(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(FILE))
}

/// Overwrites a file; private if it is created.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    options().create(true).write(true).truncate(true).open(path)?.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::clock::{System, random_bytes};

    #[test]
    fn what_is_made_is_its_owners_alone() {
        let name = format!("faregate-private-{}", u64::from_be_bytes(random_bytes(&System)));
        let folder = std::env::temp_dir().join(name).join("inner");
        create_folder(&folder).unwrap();
        create_folder(&folder).unwrap();
        let (made, old) = (folder.join("made"), folder.join("old"));
        write(&made, b"x").unwrap();
        write(&made, b"yz").unwrap();
        fs::write(&old, "x").unwrap();
        narrow(&old).unwrap();
        assert_eq!(fs::read(&made).unwrap(), b"yz");
        let bits = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let modes = [folder.as_path(), folder.parent().unwrap(), &made, &old].map(bits);
        assert_eq!(modes, [FOLDER, FOLDER, FILE, FILE]);
        fs::remove_dir_all(folder.parent().unwrap()).unwrap();
    }
}
