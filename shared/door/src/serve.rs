//! The HTTP server of every port. How connections are served and when they end is decided only here.
//!
//! Every new connection is admitted (`register`). A connection is closed after a time limit if it sends no head,
//! carries no request, or does not read its answers. Only complete heads and requests count as progress, not bytes.

mod arrival;
mod body;
mod bounds;
mod connection;
mod http;
mod listener;
mod progress;
mod register;
mod tls;
mod workers;

pub use arrival::{ConnectionTrust, OverTls, PeerAddress, note_arrival};
pub use body::{Detach, Unread};
pub(crate) use bounds::LEAST_CONNECTIONS;
pub use bounds::{Bounds, ConnectionOptions};
pub use listener::{DRAIN, Port, PublicListener, bind, serve, serve_on};
pub use tls::PortTls;
pub use workers::{Handler, Worker};
