//! The world of a run: an account with its keys, two gateways, two key-services, two upstreams, and their environment.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use key_service_store::store::Store;
use parking_lot::Mutex;
use shared::ids::{AccountId, GroupId};
use shared_catalog::Catalog;
use shared_config::current::Current;
use tests::upstream::State;
use tokio::time::Instant;

use crate::{
    account::{Account, open_account},
    chance::{clock::ProcessClock, dice::Dice},
    client::Outcome,
    keys::RunKey,
    services::{
        gateway::{self, Gateway},
        key_service::{self, SimulatedKeyService},
        network::Network,
        store::SharedMaps,
        upstream,
    },
    trace::{Trace, tell},
};

/// Places of the gateways and key-services.
pub(crate) const GATEWAYS: [&str; 2] = ["gateway-1", "gateway-2"];
pub(crate) const KEY_SERVICES: [&str; 2] = ["key-service-1", "key-service-2"];

/// How long clients send requests and faults happen.
pub(crate) const BUSY: Duration = Duration::from_secs(10);

pub(crate) struct World {
    pub(crate) trace: Arc<Trace>,
    pub(crate) network: Arc<Network>,
    pub(crate) maps: Arc<SharedMaps>,
    catalog: Catalog,
    prices: Arc<Current<Catalog>>,
    spools: tempfile::TempDir,
    pub(crate) began: Instant,
    dice: Mutex<Dice>,
    clocks: Mutex<BTreeMap<String, Arc<ProcessClock>>>,
    pub(crate) gateways: Mutex<BTreeMap<&'static str, Arc<Gateway>>>,
    pub(crate) key_services: Mutex<BTreeMap<&'static str, Arc<SimulatedKeyService>>>,
    pub(crate) upstreams: Vec<Arc<State>>,
    pub(crate) account: AccountId,
    pub(crate) groups: Vec<GroupId>,
    pub(crate) keys: Arc<Mutex<Vec<RunKey>>>,
    /// The store, accessed directly.
    pub(crate) present: Arc<Store>,
    pub(crate) outcomes: Mutex<Vec<Outcome>>,
    /// Times of gateways' crashes. After a crash, holds may expire.
    pub(crate) crashes: Mutex<Vec<Instant>>,
}

impl World {
    pub(crate) async fn new(seed: u64) -> Self {
        let (mut dice, began) = (Dice::new(seed), Instant::now());
        let trace = Arc::new(Trace::new(began));
        let network = Network::new(trace.clone(), dice.fork());
        let maps = Arc::new(SharedMaps::default());
        let upstreams = upstream::UPSTREAMS.map(|place| upstream::start(place, &network)).to_vec();
        let Account { id, groups, keys, store } = open_account(&maps, began, &mut dice).await;
        let catalog = upstream::catalog();
        Self {
            trace,
            network,
            prices: Arc::new(Current::new(catalog.clone())),
            catalog,
            spools: tempfile::Builder::new().tempdir_in(folder()).unwrap(),
            began,
            dice: Mutex::new(dice),
            clocks: Mutex::default(),
            gateways: Mutex::default(),
            key_services: Mutex::default(),
            upstreams,
            account: id,
            groups,
            keys: Arc::new(Mutex::new(keys)),
            present: store,
            maps,
            outcomes: Mutex::default(),
            crashes: Mutex::default(),
        }
    }

    pub(crate) fn fork(&self) -> Dice {
        self.dice.lock().fork()
    }

    /// Returns the wall clock at a place. A restart does not change it.
    pub(crate) fn clock(&self, place: &str) -> Arc<ProcessClock> {
        let clock = || Arc::new(ProcessClock::new(self.began, self.fork()));
        self.clocks.lock().entry(place.to_owned()).or_insert_with(clock).clone()
    }

    pub(crate) fn start_key_service(&self, place: &'static str) {
        tell!(self.trace, "{place} starts");
        let (seams, clock) = ((&self.network, &self.maps), self.clock(place));
        let started =
            key_service::start(place, seams, (clock, self.fork()), (self.prices.clone(), self.keys.clone()));
        self.key_services.lock().insert(place, Arc::new(started));
    }

    pub(crate) fn start_gateway(&self, place: &'static str) {
        tell!(self.trace, "{place} starts");
        let spool: PathBuf = self.spools.path().join(place);
        let (clock, peers) = (self.clock(place), (&KEY_SERVICES[..], spool));
        let started = gateway::start(place, &self.network, clock, &self.catalog, peers);
        self.gateways.lock().insert(place, Arc::new(started));
    }
}

/// Returns a directory in memory if there is one, since a spool syncs every line.
fn folder() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}
