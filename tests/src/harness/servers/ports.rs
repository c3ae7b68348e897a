//! Ports of servers that are stopped and then started again at the same address.

use std::{
    net::TcpListener,
    ops::Range,
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Ports below the range that Linux assigns to connections and to listeners without a fixed port
/// (`net.ipv4.ip_local_port_range`), so that nothing takes a port while its server is down.
const PORTS: Range<u32> = 10_000..32_000;

/// Number of ports that were handed out.
static GIVEN_OUT: AtomicU32 = AtomicU32::new(0);

/// A free loopback port that no other call returns.
pub fn free_port() -> u16 {
    let count = PORTS.end - PORTS.start;
    // Other test processes begin elsewhere.
    let first = process::id().wrapping_mul(7_919) % count;
    for _ in PORTS {
        let place = (first + GIVEN_OUT.fetch_add(1, Ordering::Relaxed)) % count;
        let port = u16::try_from(PORTS.start + place).expect("ports have 16 bits");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("the loopback has no free port from {} to {}", PORTS.start, PORTS.end);
}
