//! Messages to a service manager such as systemd, by the protocol of `sd_notify`.

use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
};

/// Tells the service manager about this process, if one listens.
pub(super) fn tell(state: &str) {
    let Ok(socket) = env::var("NOTIFY_SOCKET") else { return };
    if let Err(e) = send(&socket, state) {
        tracing::warn!(error = %e, state, "the service manager cannot be told");
    }
}

/// Sends a message to a socket's path or, after an `@`, to a name without a file.
fn send(socket: &str, state: &str) -> io::Result<()> {
    let address = match socket.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}
