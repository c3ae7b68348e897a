//! The HTTP server of every port. All decisions on how connections are served and when they end are made here.
//!
//! Every new connection is admitted (`register`). A connection that sends no head, carries no request, or reads its
//! answers too slowly is closed after a time limit. Progress is measured in requests, not in bytes.

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
