//! HTTP clients for upstreams, key-services, webhook receivers and telemetry receivers. They speak HTTP/1, and limit
//! what a server may send before the final head of its answer.

mod connection;
pub mod dial;
pub mod fair_read;
mod final_head;
pub mod server_check;
pub mod upstream_access;
pub mod upstream_call;
pub mod watched_stream;

pub use connection::{
    ClientSettings, Connector, HttpClient, connect, handshake, http_client, http_client_over,
};
pub use final_head::NoFinalHead;
