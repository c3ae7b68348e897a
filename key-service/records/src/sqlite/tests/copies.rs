//! Copies of a file, and the layout that a file states.

use std::{fs, os::unix::fs::PermissionsExt};

use rusqlite::Connection;

use super::{Folder, count, counted};
use crate::{
    records::Records,
    sqlite::{
        OpenError, Sqlite,
        copy::{self, CopyError, LayoutVersion},
    },
};

const CURRENT: LayoutVersion = LayoutVersion { found: 103, known: 103 };

#[tokio::test]
async fn a_copy_of_a_file_that_is_written_is_whole_and_its_owners_alone() {
    let (folder, place) = (Folder::new(), Folder::new());
    let store = folder.open();
    for n in 1..=50 {
        count(&store, n).await.unwrap();
    }
    assert_eq!(copy::version(&place.file()).unwrap(), None);
    assert_eq!(copy::copy(&folder.file(), &place.file()).unwrap(), CURRENT);
    copy::sync(&place.file()).unwrap();
    count(&store, 51).await.unwrap();
    assert_eq!(fs::metadata(place.file()).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(copy::check(&place.file()).unwrap(), CURRENT);
    assert_eq!(copy::version(&place.file()).unwrap(), Some(CURRENT));
    assert_eq!(counted(&place.open()).await, 50);
    let again = copy::copy(&folder.file(), &place.file()).unwrap_err();
    assert!(matches!(again, CopyError::File(..)), "{again}");
}

#[tokio::test]
async fn a_file_is_set_aside_with_all_that_was_answered_unless_it_is_served() {
    let folder = Folder::new();
    let aside = folder.0.path().join("aside.db");
    assert!(!copy::set_aside(&folder.file(), &aside).unwrap());
    let store = folder.open();
    count(&store, 1).await.unwrap();
    let served = copy::set_aside(&folder.file(), &aside).unwrap_err();
    assert!(matches!(served, CopyError::Served(_)), "{served}");
    let served = copy::check_unserved(&folder.file()).unwrap_err();
    assert!(matches!(served, CopyError::Served(_)), "{served}");
    drop(store);
    copy::check_unserved(&folder.file()).unwrap();
    assert!(copy::set_aside(&folder.file(), &aside).unwrap());
    assert!(!folder.file().exists() && !folder.wal().exists());
    assert_eq!(counted(&Sqlite::open(&aside).unwrap()).await, 1);
}

#[tokio::test]
async fn a_file_that_is_damaged_or_of_an_earlier_layout_is_no_backup() {
    let folder = Folder::new();
    let store = folder.open();
    for n in 1..=200 {
        count(&store, n).await.unwrap();
    }
    drop(store);
    let mut bytes = fs::read(folder.file()).unwrap();
    let half = bytes.len() / 2;
    bytes[half..].fill(7);
    fs::write(folder.file(), bytes).unwrap();
    let damaged = copy::check(&folder.file()).unwrap_err();
    assert!(matches!(damaged, CopyError::Damaged(..)), "{damaged}");
    Connection::open(folder.file()).unwrap().pragma_update(None, "user_version", 22).unwrap();
    let earlier = copy::check(&folder.file()).unwrap_err();
    assert!(matches!(earlier, CopyError::Refused(OpenError::Earlier(_))), "{earlier}");
}

#[tokio::test]
async fn a_store_says_how_it_is() {
    let folder = Folder::new();
    let file = folder.open();
    let before = fs::metadata(folder.wal()).unwrap().len();
    file.try_write().await.unwrap();
    assert!(fs::metadata(folder.wal()).unwrap().len() > before, "a trial takes room");
    let ratio = file.used_ratio().await.unwrap().unwrap();
    assert!((0.0..=1.0).contains(&ratio), "{ratio}");
    assert!(file.persistence_warnings().await.is_empty());
    let memory = Sqlite::in_memory().unwrap();
    memory.try_write().await.unwrap();
    assert_eq!(memory.used_ratio().await, Ok(None));
    assert!(memory.persistence_warnings().await[0].contains("in memory"));
    for store in [&*file, &memory] {
        store.ping().await.unwrap();
        assert_eq!(store.is_nearly_full().await, Ok(false));
    }
    fs::remove_file(folder.file()).unwrap();
    for refused in [file.ping().await, file.try_write().await] {
        assert!(refused.unwrap_err().to_string().contains("removed or replaced"));
    }
}
