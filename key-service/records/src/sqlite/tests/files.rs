//! Files that open, are refused, or have disappeared.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use rusqlite::Connection;

use super::{Folder, count, counted, space};
use crate::{
    records::{Failure, Records},
    sqlite::{OpenError, Sqlite},
};

/// Opens a file that is refused, and checks that it is unchanged.
fn refused(path: &Path) -> OpenError {
    let before = fs::read(path).unwrap();
    let refused = Sqlite::open(path).err().unwrap();
    assert_eq!(fs::read(path).unwrap(), before, "{}", path.display());
    refused
}

fn made_with(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

/// What a crash left in the write-ahead log stays there too.
#[test]
fn a_file_of_an_earlier_layout_is_refused_and_left_alone() {
    let (folder, crashed) = (Folder::new(), Folder::new());
    let tables = "PRAGMA journal_mode = wal; PRAGMA application_id = 0x46617265; PRAGMA user_version = 22;
        CREATE TABLE accounts (id BLOB PRIMARY KEY)";
    let earlier = Connection::open(folder.file()).unwrap();
    earlier.execute_batch(tables).unwrap();
    fs::copy(folder.file(), crashed.file()).unwrap();
    fs::copy(folder.wal(), crashed.wal()).unwrap();
    let log = fs::read(crashed.wal()).unwrap();
    let refused = refused(&crashed.file());
    assert!(matches!(refused, OpenError::Earlier(_)), "{refused:?}");
    assert!(refused.to_string().contains("an earlier layout, which was never released"), "{refused}");
    assert_eq!(fs::read(crashed.wal()).unwrap(), log);
}

#[test]
fn a_file_of_a_newer_layout_is_refused_and_left_alone() {
    let folder = Folder::new();
    drop(folder.open());
    made_with(&folder.file(), "PRAGMA user_version = 104");
    let refused = refused(&folder.file());
    assert!(matches!(refused, OpenError::Newer { found: 104, .. }), "{refused:?}");
    assert!(refused.to_string().contains("newer version"), "{refused}");
}

#[test]
fn a_file_of_another_program_is_refused_and_left_alone() {
    let folder = Folder::new();
    let path = |name: &str| folder.0.path().join(name);
    made_with(&path("another.db"), "CREATE TABLE notes (text TEXT); PRAGMA application_id = 7");
    made_with(&path("nameless.db"), "CREATE TABLE notes (text TEXT)");
    fs::write(path("diary.txt"), "Dear diary, ".repeat(999)).unwrap();
    for name in ["another.db", "nameless.db", "diary.txt"] {
        let refused = refused(&path(name));
        assert!(matches!(refused, OpenError::NotOurs(_)), "{name}: {refused:?}");
    }
    let nowhere = Sqlite::open(&path("no such folder/store.db")).err().unwrap();
    assert!(matches!(nowhere, OpenError::NotMade(..)), "{nowhere:?}");
}

#[test]
fn a_new_file_is_its_owners_alone() {
    let folder = Folder::new();
    let _store = folder.open();
    for path in [folder.file(), folder.wal()] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[tokio::test]
async fn a_new_file_may_be_opened_by_many_at_once() {
    let folder = Folder::new();
    std::thread::scope(|scope| {
        let opening: Vec<_> =
            (0..8).map(|_| scope.spawn(|| Sqlite::open(&folder.file()).map(drop))).collect();
        for opened in opening {
            opened.join().unwrap().unwrap();
        }
    });
    count(&folder.open(), 1).await.unwrap();
}

#[tokio::test]
async fn a_layout_that_a_newer_version_has_taken_over_is_written_no_more() {
    let folder = Folder::new();
    let store = folder.open();
    count(&store, 1).await.unwrap();
    made_with(&folder.file(), "PRAGMA user_version = 104");
    let refused = count(&store, 2).await.unwrap_err();
    assert!(matches!(&refused, Failure::NotDone(reason) if reason.contains("newer version")), "{refused}");
    made_with(&folder.file(), "PRAGMA user_version = 103");
    count(&store, 2).await.unwrap();
}

#[tokio::test]
async fn a_file_that_was_removed_or_replaced_does_nothing_until_it_is_back() {
    let folder = Folder::new();
    let store = folder.open();
    let away = folder.file().with_extension("away");
    count(&store, 1).await.unwrap();
    fs::rename(folder.file(), &away).unwrap();
    for _ in ["removed", "replaced"] {
        let read = store.read(&space(), Vec::new()).await.unwrap_err();
        for failure in [count(&store, 2).await.unwrap_err(), read] {
            assert!(failure.to_string().contains("removed or replaced"), "{failure}");
            assert!(matches!(failure, Failure::NotDone(_)));
        }
        fs::copy(&away, folder.file()).unwrap();
    }
    fs::rename(&away, folder.file()).unwrap();
    count(&store, 2).await.unwrap();
    assert_eq!(counted(&store).await, 2);
}
