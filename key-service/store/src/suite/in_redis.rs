//! The store over Redis: on one server, on a server that is killed, and on a cluster.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "panics are fine as test failures")]

use std::sync::Arc;

use records::{
    redis::{Redis, Settings},
    servers::{Cluster, RedisServer, settings},
};
use shared::clock::System;
use tempfile::TempDir;

use super::{Subject, in_maps, over};
use crate::store::Store;

/// Opens a store with these settings.
pub async fn open(settings: &Settings) -> Arc<Store> {
    over(Arc::new(Redis::open(settings, Arc::new(System)).await.unwrap()))
}

/// The store on a single server.
pub struct InRedis {
    store: Arc<Store>,
    _data_dir: TempDir,
    _server: Arc<RedisServer>,
}

impl Subject for InRedis {
    async fn new() -> Self {
        let (server, data_dir) = (RedisServer::shared(), tempfile::tempdir().unwrap());
        let store = open(&settings(&server.url(), &data_dir)).await;
        Self { store, _data_dir: data_dir, _server: server }
    }

    fn store(&self) -> &Arc<Store> {
        &self.store
    }
}

/// The store on a server that is killed and restarted in the middle of each case; the store reconnects by itself.
pub struct Killed {
    store: Arc<Store>,
    _data_dir: TempDir,
    server: RedisServer,
}

impl Subject for Killed {
    async fn new() -> Self {
        let (server, data_dir) = (RedisServer::start(), tempfile::tempdir().unwrap());
        let store = open(&settings(&server.url(), &data_dir)).await;
        Self { store, _data_dir: data_dir, server }
    }

    fn store(&self) -> &Arc<Store> {
        &self.store
    }

    async fn interrupt(&mut self) {
        self.server.kill();
        self.server.start_again();
    }
}

/// The store on a cluster, reopened in the middle of each case.
pub struct InCluster {
    store: Arc<Store>,
    settings: Settings,
    _data_dir: TempDir,
    _cluster: Arc<Cluster>,
}

impl Subject for InCluster {
    async fn new() -> Self {
        let (cluster, data_dir) = (Cluster::shared(), tempfile::tempdir().unwrap());
        let settings = settings(&cluster.url(), &data_dir);
        Self { store: open(&settings).await, settings, _data_dir: data_dir, _cluster: cluster }
    }

    fn store(&self) -> &Arc<Store> {
        &self.store
    }

    async fn interrupt(&mut self) {
        // The store is closed before it is opened again.
        self.store = in_maps();
        self.store = open(&self.settings).await;
    }
}
