//! Finds the master for each request, and masters that took over from others.

use std::{sync::Arc, time::Duration};

use redis::{ErrorKind, RedisError, RedisResult};
use tokio::time::sleep;

use super::{
    cluster::{Cluster, Redirection},
    server::{Checks, Server},
};
use crate::{records::Term, redis::connection::RedisOrigin};

/// Pause before repeating a request that no node of the cluster can answer at the moment.
const LATER: Duration = Duration::from_millis(20);

/// The masters that serve the store.
pub(in crate::redis) enum Serving {
    One(Arc<Server>),
    Cluster(Arc<Cluster>),
}

impl Serving {
    /// Finds the masters, before there are connections.
    pub(in crate::redis) async fn find(origin: RedisOrigin, checks: Arc<Checks>) -> RedisResult<Self> {
        Ok(match origin {
            RedisOrigin::One(source) => Self::One(Server::new(String::new(), source, checks)),
            RedisOrigin::Cluster(nodes) => Self::Cluster(Cluster::find(nodes, checks).await?),
        })
    }

    pub(in crate::redis) fn masters(&self) -> Vec<Arc<Server>> {
        match self {
            Self::One(master) => vec![Arc::clone(master)],
            Self::Cluster(cluster) => cluster.masters(),
        }
    }

    pub(in crate::redis) fn master_of(&self, key: &[u8]) -> RedisResult<Arc<Server>> {
        match self {
            Self::One(master) => Ok(Arc::clone(master)),
            Self::Cluster(cluster) => cluster.master_of(key),
        }
    }

    /// Returns whether the slot of a name is moving and the node that takes it over has answered recently.
    pub(in crate::redis) fn is_leaving(&self, key: &[u8]) -> bool {
        match self {
            Self::One(_) => false,
            Self::Cluster(cluster) => cluster.is_leaving(key),
        }
    }

    /// Returns the number of slots that no master has.
    pub(in crate::redis) fn uncovered(&self) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Cluster(cluster) => cluster.uncovered(),
        }
    }

    /// Finds out whether other servers have become masters, unless that was done recently.
    pub(in crate::redis) async fn renew(&self) {
        match self {
            Self::One(master) => {
                master.renew(master.term()).await;
            }
            Self::Cluster(cluster) => cluster.look_if_due().await,
        }
    }

    /// Does the same after a master has refused a call. Returns whether the call should be repeated.
    pub(in crate::redis) async fn is_replaced(&self, master: &Arc<Server>, term: Term, key: &[u8]) -> bool {
        match self {
            Self::One(master) => master.renew(term).await,
            Self::Cluster(cluster) => {
                cluster.look_if_due().await;
                cluster.master_of(key).is_ok_and(|found| !Arc::ptr_eq(&found, master))
            }
        }
    }

    /// Finds out which masters have which slots now.
    pub(in crate::redis) async fn look(&self) {
        match self {
            Self::One(_) => {}
            Self::Cluster(cluster) => cluster.look().await,
        }
    }

    /// Does the same in the background.
    pub(in crate::redis) fn look_soon(&self) {
        match self {
            Self::One(_) => {}
            Self::Cluster(cluster) => cluster.look_soon(),
        }
    }

    /// Follows a redirection. Returns the node that takes over the slot if only the next request should go there.
    pub(in crate::redis) async fn follow(
        &self,
        from: &Arc<Server>,
        redirection: Redirection,
    ) -> RedisResult<Option<Arc<Server>>> {
        match (self, redirection) {
            (Self::Cluster(cluster), Redirection::Moved(slot, to)) => {
                cluster.moved(slot, &cluster.redirected(from, &to)?);
                cluster.look_soon();
                Ok(None)
            }
            (Self::Cluster(cluster), Redirection::Arriving(slot, to)) => {
                cluster.leaves(slot);
                cluster.redirected(from, &to).map(Some)
            }
            (Self::One(_), Redirection::Moved(..) | Redirection::Arriving(..)) => {
                let why = "it is a node of a cluster: set FAREGATE_STORE to redis+cluster://…";
                Err((ErrorKind::InvalidClientConfig, why).into())
            }
            (Self::One(_) | Self::Cluster(_), Redirection::Later(_)) => {
                self.look_soon();
                sleep(LATER).await;
                Ok(None)
            }
        }
    }

    pub(in crate::redis) fn why_late(&self, key: &[u8]) -> RedisError {
        self.master_of(key).map_or_else(|e| e, |master| master.why_late())
    }
}
