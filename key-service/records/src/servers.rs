//! Private Redis servers on separate sockets and ports, for tests in this and other crates. A server stops when the
//! last test that uses it ends.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "panics are fine as test failures")]

mod cluster;
mod files;
mod lines;
mod ports;
mod server;
mod waiting;
mod watched;

use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

pub use self::{
    cluster::Cluster, files::copy, ports::free_port, server::RedisServer, waiting::PATIENCE, watched::Watched,
};
use crate::redis::{Address, Certificates, Settings};

/// Returns settings for a separate store at this address, next to others on the same servers.
pub fn settings(url: &str, data_dir: &TempDir) -> Settings {
    static STORES: AtomicU32 = AtomicU32::new(0);
    Settings {
        address: Address::parse(url).unwrap(),
        prefix: format!("store-{}", STORES.fetch_add(1, Ordering::Relaxed)),
        volatile_allowed: false,
        wait_replicas: 0,
        certificates: Certificates::default(),
        data_dir: Some(data_dir.path().to_owned()),
        is_marked: true,
    }
}
