//! Ports of servers that are stopped and later started again at the same address.

use std::{
    env,
    net::TcpListener,
    ops::Range,
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// The ports to choose from. They are below the range from which Linux takes ports for connections and for listeners
/// that have no fixed port (`net.ipv4.ip_local_port_range`). So nothing takes the port of a server while that server
/// does not run.
const PORTS: Range<u32> = 10_000..32_000;

/// Environment variable with the range of ports that this process may use, such as `10000-12750`.
/// `tests/tools/tests.py` sets it, because it runs many test processes at the same time.
const OWN: &str = "FAREGATE_TEST_PORTS";

/// Number of ports that this process has given out.
static GIVEN_OUT: AtomicU32 = AtomicU32::new(0);

/// Returns a free port of the loopback interface. No other call in this process returns the same port.
pub fn free_port() -> u16 {
    let ports = own_ports();
    let count = ports.end - ports.start;
    // Test processes begin at different ports, so that they do not choose the same ones.
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
