//! Ports of servers that are stopped and then started again at the same address.

use std::{
    env,
    net::TcpListener,
    ops::Range,
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Ports below the range that Linux assigns to connections and to listeners without a fixed port
/// (`net.ipv4.ip_local_port_range`), so that nothing takes a port while its server is down.
const PORTS: Range<u32> = 10_000..32_000;

/// Environment variable with the range of ports that this process may use, such as `10000-12750`.
/// `tests/tools/tests.py` sets it, because it runs many processes with tests at a time.
const OWN: &str = "FAREGATE_TEST_PORTS";

/// Number of ports that were handed out.
static GIVEN_OUT: AtomicU32 = AtomicU32::new(0);

/// Returns a free loopback port that no other call returns.
pub fn free_port() -> u16 {
    let ports = own_ports();
    let count = ports.end - ports.start;
    // Other test processes start at different ports.
    let first = process::id().wrapping_mul(7_919) % count;
    for _ in ports.clone() {
        let place = (first + GIVEN_OUT.fetch_add(1, Ordering::Relaxed)) % count;
        let port = u16::try_from(ports.start + place).expect("ports have 16 bits");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("the loopback has no free port from {} to {}", ports.start, ports.end);
}

fn own_ports() -> Range<u32> {
    let Ok(own) = env::var(OWN) else { return PORTS };
    let ends = own.split_once('-').and_then(|(start, end)| Some(start.parse().ok()?..end.parse().ok()?));
    ends.unwrap_or_else(|| panic!("{OWN} is {own:?}, not two ports with a hyphen between them"))
}
