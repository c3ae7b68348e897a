//! Ports for servers.

use std::{
    net::TcpListener,
    ops::Range,
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Ports below those that Linux gives to connections, and to listeners that ask for any (`net.ipv4.ip_local_port_range`): nothing
/// takes them before their server does.
const PORTS: Range<u32> = 10_000..32_000;

/// A port of the loopback that is free and given out once.
pub fn free_port() -> u16 {
    static GIVEN_OUT: AtomicU32 = AtomicU32::new(0);
    let count = PORTS.end - PORTS.start;
    // Other processes that run tests begin elsewhere.
    let first = process::id().wrapping_mul(7_919) % count;
    let places = PORTS.map(|_| (first + GIVEN_OUT.fetch_add(1, Ordering::Relaxed)) % count);
    let mut ports = places.map(|place| u16::try_from(PORTS.start + place).unwrap());
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("the loopback has a free port")
}
