//! The network from which a request comes, and whether its connection is trusted.

use std::{net::IpAddr, sync::Arc};

use http::Extensions;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::{
    admission::{Network, Owner},
    serve::connection::Connection,
};

/// Network address of the client that sent a request, or of the proxy in front of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

/// Extension that marks requests that came over TLS.
#[derive(Clone, Copy, Debug)]
pub struct OverTls;

#[derive(Clone)]
pub(super) struct CarriedBy(pub(super) Arc<Connection>);

/// Records that a request has reached its handler. Until then, its connection counts as arriving.
pub fn note_arrival(request: &mut Extensions) {
    request.remove::<TaskTrackerToken>();
}

/// Whether the connection of a request is trusted. As soon as a credential is accepted on a connection, it counts as
/// the connection of an authenticated caller. Cheap to clone.
#[derive(Clone, Default)]
pub struct ConnectionTrust(Option<Arc<Connection>>);

impl ConnectionTrust {
    /// Reads from a request's extensions whether the request's connection is trusted.
    pub fn of(request: &Extensions) -> Self {
        Self(request.get().map(|CarriedBy(connection)| connection.clone()))
    }

    /// Records that a credential of this owner was accepted on the connection.
    pub fn grant(&self, owner: Owner) {
        if let Some(connection) = &self.0 {
            connection.trust(owner);
        }
    }

    /// Returns the owner of the connection. Until a credential is accepted, this is its network. Requests that come
    /// from inside the process belong to the installation.
    pub fn owner(&self) -> Owner {
        self.0.as_ref().map_or(Owner::Service, |connection| connection.owner())
    }

    /// Returns the network from which the connection comes.
    pub fn network(&self) -> Network {
        self.0.as_ref().map_or(Network::UNKNOWN, |connection| connection.network)
    }
}
