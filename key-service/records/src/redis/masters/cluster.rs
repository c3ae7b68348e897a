//! The masters of a cluster and their slots.
//!
//! A node that fails cannot say which node takes over its slots. So after every failure, another node is asked.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::RwLock;
use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, cluster_routing::Slot};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep_until, timeout},
};

use super::{
    server::{Checks, Server, failure},
    slots::{SLOTS, Slots, host, on_host, stranger},
};
use crate::redis::connection::{Connection, Nodes, may_pass};

/// Minimum time between two lookups of the slots, because a shard may be away for a long time.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Timeout for a node that is asked to list the slots. After that, another node is asked.
const TELLING: Duration = Duration::from_millis(500);

/// For how long a request is repeated while its slot is moving and only some of its names have moved. This is shorter
/// than the timeout of a call, so that callers learn the reason.
const MOVING: Duration = Duration::from_millis(1_400);
/// For how long a request is repeated while the cluster is down. This is shorter than the time after which gateways
/// also send the call to another key-service. For that key-service, the cluster would be down too.
const DOWN: Duration = Duration::from_millis(400);
/// After a request about a moving slot was sent to the node that takes the slot over, this node is assumed for this
/// long to have writes that the slot's master lacks. This is longer than any call takes.
const LEAVING: Duration = Duration::from_secs(10);

/// What is known about a cluster.
pub(in crate::redis) struct Cluster {
    nodes: Nodes,
    checks: Arc<Checks>,
    table: RwLock<SlotTable>,
    /// Time of the last lookup. It stays locked during a lookup, so that there is only one lookup at a time.
    looked: Mutex<Option<Instant>>,
    /// Number of nodes asked so far, so that nodes are asked in turn.
    asked: AtomicUsize,
}

#[derive(Default)]
struct SlotTable {
    slots: HashMap<Slot, Arc<Server>>,
    /// Slots that are moving away from their masters, each with the time at which the node that takes it over was last
    /// asked.
    leaving: HashMap<Slot, Instant>,
    /// Masters by address.
    masters: BTreeMap<String, Arc<Server>>,
    /// Addresses of replicas. They can be asked for the slots too.
    replicas: BTreeSet<String>,
}

/// Where a node redirects a request that it does not answer.
pub(in crate::redis) enum Redirection {
    /// Another node has the slot.
    Moved(Slot, String),
    /// Another node is taking over the slot, and already has the names in the request.
    Arriving(Slot, String),
    /// No node can answer at the moment. The request may be repeated for this long.
    Later(Duration),
}

impl Redirection {
    /// Returns the redirection that an error contains; `None` for other errors.
    pub(in crate::redis) fn of(error: &RedisError) -> Option<Self> {
        let to = error.redirect_node();
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => {
                to.and_then(|(to, slot)| Some(Self::Moved(Slot::new(slot)?, to.to_owned())))
            }
            ErrorKind::Server(ServerErrorKind::Ask) => {
                to.and_then(|(to, slot)| Some(Self::Arriving(Slot::new(slot)?, to.to_owned())))
            }
            ErrorKind::Server(ServerErrorKind::TryAgain) => Some(Self::Later(MOVING)),
            ErrorKind::Server(ServerErrorKind::ClusterDown) => Some(Self::Later(DOWN)),
            _ => None,
        }
    }
}

impl Cluster {
    /// Looks up the slots for the first time, before there are connections.
    pub(in crate::redis) async fn find(nodes: Nodes, checks: Arc<Checks>) -> RedisResult<Arc<Self>> {
        let (table, looked, asked) = (RwLock::default(), Mutex::new(None), AtomicUsize::new(0));
        let cluster = Arc::new(Self { nodes, checks, table, looked, asked });
        cluster.read_slots().await?;
        Ok(cluster)
    }

    /// Returns all masters, sorted by address.
    pub(in crate::redis) fn masters(&self) -> Vec<Arc<Server>> {
        self.table.read().masters.values().cloned().collect()
    }

    /// Returns the master that has the slot of this name.
    pub(in crate::redis) fn master_of(&self, key: &[u8]) -> RedisResult<Arc<Server>> {
        let master = self.table.read().slots.get(&Slot::for_key(key)).cloned();
        master.ok_or_else(|| {
            (ErrorKind::Server(ServerErrorKind::ClusterDown), "no node of the cluster has the slot").into()
        })
    }

    /// Returns the number of slots that no master has.
    pub(in crate::redis) fn uncovered(&self) -> usize {
        usize::from(SLOTS) - self.table.read().slots.len()
    }

    /// Returns the node to which a server redirects. In an address without a host, the host is the server's own.
    pub(in crate::redis) fn redirected(&self, from: &Server, to: &str) -> RedisResult<Arc<Server>> {
        let address = on_host(host(&from.name), to);
        let mut table = self.table.write();
        let (node, is_new) = self.node(&mut table.masters, &address)?;
        if is_new {
            node.connect_again();
        }
        Ok(node)
    }

    /// Notes that a slot has moved to a node.
    pub(in crate::redis) fn moved(&self, slot: Slot, to: &Arc<Server>) {
        let mut table = self.table.write();
        table.leaving.remove(&slot);
        table.slots.insert(slot, Arc::clone(to));
    }

    /// Notes that a request about this slot is being sent to the node that takes the slot over.
    pub(in crate::redis) fn leaves(&self, slot: Slot) {
        self.table.write().leaving.insert(slot, Instant::now());
    }

    /// Returns whether the node that takes over a name's slot may have writes that the slot's master lacks.
    pub(in crate::redis) fn is_leaving(&self, key: &[u8]) -> bool {
        let table = self.table.read();
        table.leaving.get(&Slot::for_key(key)).is_some_and(|asked| asked.elapsed() < LEAVING)
    }

    /// Looks up the slots, unless somebody has done so since this call began.
    pub(in crate::redis) async fn look(self: &Arc<Self>) {
        let called = Instant::now();
        let mut looked = self.looked.lock().await;
        if looked.is_some_and(|looked| looked > called) {
            return;
        }
        if let Some(looked) = *looked {
            sleep_until(looked + LOOK_EVERY).await;
        }
        *looked = Some(Instant::now());
        match self.read_slots().await {
            Ok(new) => new.iter().for_each(Server::connect_again),
            Err(e) => tracing::warn!(error = %e, "no node reports the cluster's slots"),
        }
    }

    /// Looks up the slots, unless that was done recently.
    pub(in crate::redis) async fn look_if_due(self: &Arc<Self>) {
        if self.is_due() {
            self.look().await;
        }
    }

    /// Looks up the slots in the background, unless that was done recently.
    pub(in crate::redis) fn look_soon(self: &Arc<Self>) {
        if self.is_due() {
            let cluster = Arc::clone(self);
            tokio::spawn(async move { cluster.look().await });
        }
    }

    fn is_due(&self) -> bool {
        let is_long_ago =
            |looked: Option<Instant>| looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY);
        self.looked.try_lock().is_ok_and(|looked| is_long_ago(*looked))
    }

    /// Asks one node after another for the slots, and returns newly found masters. If a node knows no owner for some
    /// slots, the other nodes may have removed it from the cluster. So they are asked too.
    async fn read_slots(&self) -> RedisResult<Vec<Arc<Server>>> {
        let mut failed = failure(std::io::ErrorKind::NotConnected, "no node is known");
        let (began, mut most) = (Instant::now(), None::<Slots>);
        for (address, known) in self.nodes_in_turn() {
            if most.is_some() && began.elapsed() >= TELLING {
                break;
            }
            self.asked.fetch_add(1, Ordering::Relaxed);
            let told = timeout(TELLING, self.ask_slots(&address, known)).await;
            match told.unwrap_or_else(|_| Err(failure(std::io::ErrorKind::TimedOut, "it did not answer"))) {
                Ok(slots) if slots.count() == usize::from(SLOTS) => return Ok(self.take_over(slots)),
                Ok(slots) if most.as_ref().is_none_or(|most| most.count() < slots.count()) => {
                    most = Some(slots);
                }
                // An error that does not go away by waiting is kept, in preference to others.
                Err(e) if may_pass(&failed) => failed = e,
                Ok(_) | Err(_) => {}
            }
        }
        most.map(|slots| self.take_over(slots)).ok_or(failed)
    }

    /// Lists the nodes that may know the slots: first the masters that are connected, in turn, then all other nodes.
    fn nodes_in_turn(&self) -> Vec<(String, Option<Arc<Server>>)> {
        let table = self.table.read();
        let turn = self.asked.load(Ordering::Relaxed);
        let (up, down): (Vec<_>, Vec<_>) = table.masters.iter().partition(|(_, server)| server.is_up());
        let mut others: Vec<String> = table.replicas.iter().cloned().collect();
        others.extend(self.nodes.addresses());
        others.retain(|address| !table.masters.contains_key(address));
        let asked_over =
            |(address, master): &(&String, &Arc<Server>)| ((*address).clone(), Some(Arc::clone(master)));
        let up = in_turn(up.iter().map(asked_over).collect(), turn);
        let others =
            in_turn(others, turn).into_iter().chain(down.iter().map(|(address, _)| (*address).clone()));
        up.into_iter().chain(others.map(|address| (address, None))).collect()
    }

    /// Asks a node for the slots, over the existing connection if the node is a known master.
    async fn ask_slots(&self, address: &str, known: Option<Arc<Server>>) -> RedisResult<Slots> {
        let mut connection: Connection = match known {
            Some(server) => server.connection().await?.0,
            None => self.nodes.source(address)?.connect(TELLING).await?,
        };
        let slots = self.checks.members.slots(&mut connection, host(address)).await?;
        let is_any_known = !self.table.read().slots.is_empty();
        if is_any_known && self.checks.members.is_stale(&slots) {
            return Err(stranger("it may not know the current slots"));
        }
        Ok(slots)
    }

    /// Replaces the table by these slots, and returns the newly found masters.
    fn take_over(&self, slots: Slots) -> Vec<Arc<Server>> {
        self.checks.members.add(&slots);
        let mut table = self.table.write();
        let (mut masters, mut fresh) = (std::mem::take(&mut table.masters), Vec::new());
        let mut next = SlotTable::default();
        for shard in slots.shards {
            let Ok((master, is_new)) = self.node(&mut masters, &shard.master) else { continue };
            if is_new {
                fresh.push(Arc::clone(&master));
            }
            for slot in (shard.first..=shard.last).filter_map(Slot::new) {
                next.slots.insert(slot, Arc::clone(&master));
            }
            next.masters.insert(shard.master, master);
            next.replicas.extend(shard.replicas);
        }
        let before = std::mem::take(&mut *table);
        for (slot, asked) in before.leaving {
            let [old, new] = [&before.slots, &next.slots].map(|slots| slots.get(&slot));
            if asked.elapsed() < LEAVING && old.zip(new).is_none_or(|(old, new)| Arc::ptr_eq(old, new)) {
                next.leaving.insert(slot, asked);
            }
        }
        *table = next;
        fresh
    }

    /// Finds a node by its address, or adds it. Also returns whether it was added.
    fn node(
        &self,
        masters: &mut BTreeMap<String, Arc<Server>>,
        address: &str,
    ) -> RedisResult<(Arc<Server>, bool)> {
        if let Some(known) = masters.get(address) {
            return Ok((Arc::clone(known), false));
        }
        let server = Server::new(address.to_owned(), self.nodes.source(address)?, Arc::clone(&self.checks));
        masters.insert(address.to_owned(), Arc::clone(&server));
        Ok((server, true))
    }
}

fn in_turn<T>(mut all: Vec<T>, turn: usize) -> Vec<T> {
    let first = turn % all.len().max(1);
    all.rotate_left(first);
    all
}
