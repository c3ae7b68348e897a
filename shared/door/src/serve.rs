//! HTTP server of every port of every program. Only this code decides how connections are served and when each ends.
//!
//! Every new connection is admitted (`register`). A connection that sends no head, carries no request, or reads too
//! little of its answers is closed in time; the progress of requests counts, not that of bytes.

mod body;
mod bounds;
mod connection;
mod http;
mod listener;
mod progress;
mod register;
mod tls;
mod workers;

use std::{net::IpAddr, sync::Arc};

use ::http::Extensions;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::admission::{Network, Owner};
pub use body::{Detach, Unread};
pub(crate) use bounds::LEAST_CONNECTIONS;
pub use bounds::{Bounds, ConnectionOptions};
use connection::Connection;
pub use listener::{DRAIN, Port, PublicListener, bind, serve, serve_on};
pub use tls::PortTls;
pub use workers::{Handler, Worker};

/// Network address of a request's client, or of the proxy in front of us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

/// Extension of requests that came over TLS.
#[derive(Clone, Copy, Debug)]
pub struct OverTls;

#[derive(Clone)]
struct CarriedBy(Arc<Connection>);

/// Notes that the handler has begun with a request. If it is the connection's first, the connection has arrived.
pub fn note_arrival(request: &mut Extensions) {
    request.remove::<TaskTrackerToken>();
}

/// Trust in the connection of a request. An accepted credential counts the connection among those of authenticated
/// callers. Cheap to clone.
#[derive(Clone, Default)]
pub struct ConnectionTrust(Option<Arc<Connection>>);

impl ConnectionTrust {
    /// Finds the trust in the connection of the request with these extensions.
    pub fn of(request: &Extensions) -> Self {
        Self(request.get().map(|CarriedBy(connection)| connection.clone()))
    }

    /// Notes that a credential of this owner was accepted on the connection.
    pub fn grant(&self, owner: Owner) {
        if let Some(connection) = &self.0 {
            connection.trust(owner);
        }
    }

    /// Owner of the connection: its network until a credential is accepted. The owner of requests from inside the
    /// process is the installation.
    pub fn owner(&self) -> Owner {
        self.0.as_ref().map_or(Owner::Service, |connection| connection.owner())
    }

    /// Network that the connection comes from.
    pub fn network(&self) -> Network {
        self.0.as_ref().map_or(Network::UNKNOWN, |connection| connection.network)
    }
}
