//! Messages to a service manager such as systemd (`sd_notify`).

use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
};

/// Tells the service manager the state of the process, if there is a service manager.
pub(super) fn tell(state: &str) {
    let Ok(socket) = env::var("NOTIFY_SOCKET") else { return };
    if let Err(e) = send(&socket, state) {
        tracing::warn!(error = %e, state, "cannot notify the service manager");
    }
}

/// Sends a message to a socket. `socket` is a path or, if it begins with `@`, a name in the abstract namespace.
fn send(socket: &str, state: &str) -> io::Result<()> {
    let address = match socket.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}
