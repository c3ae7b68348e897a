//! Ports of servers that are stopped and then started again at the same address.

use std::{
    net::TcpListener,
    ops::Range,
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Ports below those that Linux gives to connections, and to listeners that ask for any
/// (`net.ipv4.ip_local_port_range`), so that nothing takes them while their server is down.
const PORTS: Range<u32> = 10_000..32_000;

/// Number of ports given out.
static GIVEN_OUT: AtomicU32 = AtomicU32::new(0);

/// A port of the loopback that is free and given out once.
pub fn free_port() -> u16 {
    let count = PORTS.end - PORTS.start;
    // Other processes that run tests begin elsewhere.
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
