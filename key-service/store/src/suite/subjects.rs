//! Stores in memory and in files.

use std::{path::PathBuf, sync::Arc};

use records::sqlite::Sqlite;
use tempfile::TempDir;

use super::{Subject, in_maps, over};
use crate::store::Store;

/// The store over in-memory maps.
pub(super) struct InMaps(Arc<Store>);

impl Subject for InMaps {
    async fn new() -> Self {
        Self(in_maps())
    }

    fn store(&self) -> &Arc<Store> {
        &self.0
    }
}

/// The store over an in-memory SQLite database.
pub(super) struct InMemory(Arc<Store>);

impl Subject for InMemory {
    async fn new() -> Self {
        Self(over(Arc::new(Sqlite::in_memory().unwrap())))
    }

    fn store(&self) -> &Arc<Store> {
        &self.0
    }
}

/// The store over a SQLite file.
pub(super) struct InFile {
    store: Arc<Store>,
    path: PathBuf,
    _folder: TempDir,
}

impl Subject for InFile {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        Self { store: over(Arc::new(Sqlite::open(&path).unwrap())), path, _folder: folder }
    }

    fn store(&self) -> &Arc<Store> {
        &self.store
    }
}

/// The store over a SQLite file, closed and reopened in the middle of each case.
pub(super) struct Reopened(InFile);

impl Subject for Reopened {
    async fn new() -> Self {
        Self(InFile::new().await)
    }

    fn store(&self) -> &Arc<Store> {
        &self.0.store
    }

    async fn interrupt(&mut self) {
        // The file is closed before it is opened again.
        self.0.store = in_maps();
        self.0.store = over(Arc::new(Sqlite::open(&self.0.path).unwrap()));
    }
}
