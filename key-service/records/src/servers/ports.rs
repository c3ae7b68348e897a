use std::{
    env,
    net::TcpListener,
    ops::Range,
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Ports below the range that Linux assigns to connections and to listeners without a fixed port
/// (`net.ipv4.ip_local_port_range`). So nothing takes a port before its server does.
const PORTS: Range<u32> = 10_000..32_000;

/// Environment variable with the ports of this process, such as `10000-12750`. `tests/tools/tests.py` sets it, since it
/// runs many test processes at a time.
const OWN: &str = "FAREGATE_TEST_PORTS";

/// Returns a free loopback port that no other call returns.
pub fn free_port() -> u16 {
    static GIVEN_OUT: AtomicU32 = AtomicU32::new(0);
    let own = own_ports();
    let count = own.end - own.start;
    // Other test processes begin elsewhere.
    let first = process::id().wrapping_mul(7_919) % count;
    let places = own.clone().map(|_| (first + GIVEN_OUT.fetch_add(1, Ordering::Relaxed)) % count);
    let mut ports = places.map(|place| u16::try_from(own.start + place).unwrap());
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("the loopback has a free port")
}

fn own_ports() -> Range<u32> {
    let Ok(own) = env::var(OWN) else { return PORTS };
    let ends = own.split_once('-').and_then(|(start, end)| Some(start.parse().ok()?..end.parse().ok()?));
    ends.unwrap_or_else(|| panic!("{OWN} is {own:?}, not two ports with a hyphen between them"))
}
