//! The Redis store on a server, on a server that is killed, and on a cluster.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use shared::{clock::System, ids::AccountId};
use tempfile::TempDir;

use super::{
    Fault, Subject,
    servers::{Cluster, RedisServer},
};
use crate::store::{
    Store,
    redis::{Address, Certificates, Redis, Settings},
    suite::{SUITE_EVENTS, reference::Reference},
};

/// Entries that a journal keeps: more than any case settles.
const JOURNAL_ENTRIES: u32 = 100_000;

/// Settings of a separate store at this address, beside others on the same servers.
pub(crate) fn settings(url: &str, data_dir: &TempDir) -> Settings {
    static STORES: AtomicU32 = AtomicU32::new(0);
    Settings {
        address: Address::parse(url).unwrap(),
        prefix: format!("store-{}", STORES.fetch_add(1, Ordering::Relaxed)),
        journal_entries: JOURNAL_ENTRIES,
        usage_days: 400,
        events: SUITE_EVENTS,
        volatile_allowed: false,
        wait_replicas: 0,
        certificates: Certificates::default(),
        data_dir: data_dir.path().to_owned(),
        is_marked: true,
    }
}

pub(crate) async fn open(settings: &Settings) -> Arc<Redis> {
    Arc::new(Redis::open(settings, Arc::new(System)).await.unwrap())
}

/// The Redis store on a single server.
pub(crate) struct InRedis {
    redis: Arc<Redis>,
    store: Arc<dyn Store>,
    _data_dir: TempDir,
    _server: Arc<RedisServer>,
}

impl Subject for InRedis {
    async fn new() -> Self {
        let (server, data_dir) = (RedisServer::shared(), tempfile::tempdir().unwrap());
        let redis = open(&settings(&server.url(), &data_dir)).await;
        Self { store: redis.clone(), redis, _data_dir: data_dir, _server: server }
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    async fn doctor(&self, account: AccountId, fault: Fault) {
        self.redis.doctor(account, fault).await;
    }
}

/// The Redis store on a server that is killed in the middle of each case and started again; the store reconnects by
/// itself.
pub(crate) struct Killed {
    redis: Arc<Redis>,
    store: Arc<dyn Store>,
    _data_dir: TempDir,
    server: RedisServer,
}

impl Subject for Killed {
    async fn new() -> Self {
        let (server, data_dir) = (RedisServer::start(), tempfile::tempdir().unwrap());
        let redis = open(&settings(&server.url(), &data_dir)).await;
        Self { store: redis.clone(), redis, _data_dir: data_dir, server }
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    async fn interrupt(&mut self) {
        self.server.kill();
        self.server.start_again();
    }

    async fn doctor(&self, account: AccountId, fault: Fault) {
        self.redis.doctor(account, fault).await;
    }
}

/// The Redis store on a cluster, opened again in the middle of each case.
pub(crate) struct InCluster {
    /// `None` while the store is closed.
    redis: Option<Arc<Redis>>,
    store: Arc<dyn Store>,
    settings: Settings,
    _data_dir: TempDir,
    _cluster: Arc<Cluster>,
}

impl Subject for InCluster {
    async fn new() -> Self {
        let (cluster, data_dir) = (Cluster::shared(), tempfile::tempdir().unwrap());
        let settings = settings(&cluster.url(), &data_dir);
        let redis = open(&settings).await;
        Self { store: redis.clone(), redis: Some(redis), settings, _data_dir: data_dir, _cluster: cluster }
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    async fn interrupt(&mut self) {
        (self.redis, self.store) = (None, Arc::new(Reference::new()));
        let redis = open(&self.settings).await;
        (self.redis, self.store) = (Some(redis.clone()), redis);
    }

    async fn doctor(&self, account: AccountId, fault: Fault) {
        self.redis.as_ref().unwrap().doctor(account, fault).await;
    }
}
