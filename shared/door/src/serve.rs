//! HTTP server of every port of every program: the only code that decides how connections are served, and when each
//! ends.
//!
//! Every new connection is admitted (`register`). A connection that sends no head, carries no request, or takes too
//! little of its answers is closed in time, by the progress of requests, not of bytes.

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

/// The network address of a request's client, or of the proxy before us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

/// Extension of requests that came over TLS.
#[derive(Clone, Copy, Debug)]
pub struct OverTls;

/// Connection of a request; an extension of requests.
#[derive(Clone)]
struct CarriedBy(Arc<Connection>);

/// Notes that the handler has taken a request up: its connection has arrived, if it is the connection's first request.
pub fn note_arrival(request: &mut Extensions) {
    request.remove::<TaskTrackerToken>();
}

/// Trust in the connection of a request. An accepted credential moves the connection among those of authenticated
/// callers. Cheap to clone.
#[derive(Clone, Default)]
pub struct ConnectionTrust(Option<Arc<Connection>>);

impl ConnectionTrust {
    /// The trust in the connection of the request with these extensions.
    pub fn of(request: &Extensions) -> Self {
        Self(request.get().map(|CarriedBy(connection)| connection.clone()))
    }

    /// Notes that a credential of this owner was accepted on the connection.
    pub fn grant(&self, owner: Owner) {
        if let Some(connection) = &self.0 {
            connection.trust(owner);
        }
    }

    /// Owner of the connection: the network that it comes from, until a credential is accepted. Requests from inside the
    /// process are the installation's.
    pub fn owner(&self) -> Owner {
        self.0.as_ref().map_or(Owner::Service, |connection| connection.owner())
    }

    /// The network that the connection comes from.
    pub fn network(&self) -> Network {
        self.0.as_ref().map_or(Network::UNKNOWN, |connection| connection.network)
    }
}
