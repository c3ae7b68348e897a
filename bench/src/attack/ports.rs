//! Attacks that every port must withstand: sockets that fall silent, and oversized request heads.

use std::{net::SocketAddr, time::Duration};

use futures_util::future::join_all;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{
    row::Row,
    silent::{Silence, address, time_to_close},
};
use tests::harness::Server;

/// Time within which the server must close every silent socket.
const SILENCE_ENDS: Duration = Duration::from_secs(35);
/// How much longer than [`SILENCE_ENDS`] the attacker waits before it gives up.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Size of an oversized head in bytes.
const OVERSIZED: usize = 200 << 10;

/// Attacks these ports of a program, one after the other.
pub(super) async fn rows(of: &str, server: &Server, ports: &[&'static str]) -> Vec<Row> {
    let ports: Vec<_> =
        ports.iter().map(|port| (format!("{of}{port}"), address(server.address(port)))).collect();
    join_all(ports.iter().map(|(port, address)| of_port(port, *address))).await.concat()
}

/// Attacks one port: opens sockets that fall silent in every way at once, and then sends an oversized head.
pub(super) async fn of_port(port: &str, address: SocketAddr) -> Vec<Row> {
    let tried = Silence::ALL.map(|silence| (silence, tokio::spawn(time_to_close(address, silence, TIMEOUT))));
    let mut rows = Vec::new();
    for (silence, closed) in tried {
        let closed = closed.await.unwrap();
        rows.push(Row {
            name: format!("silent socket, {}, port {port}", silence.name()),
            expected: format!("closed in {SILENCE_ENDS:?}"),
            seen: closed.map_or("still open".into(), |after| format!("{:.1} s", after.as_secs_f64())),
            held: closed.is_some_and(|after| after <= SILENCE_ENDS),
        });
    }
    let answer = oversized_head(address).await;
    let status = answer.as_deref().map(|answer| answer.split(' ').nth(1).unwrap_or("no answer").to_owned());
    rows.push(Row {
        name: format!("a head of {} KiB, port {port}", OVERSIZED >> 10),
        expected: "refused, and closed".into(),
        seen: status.clone().unwrap_or_else(|| "still open".into()),
        held: status.is_some_and(|status| !status.starts_with('2')),
    });
    rows
}

/// Sends an oversized head. Returns what the server answers before it closes the connection; `None` if it does not
/// close the connection.
async fn oversized_head(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /health HTTP/1.1\r\nhost: x\r\nx-filler: {}\r\n\r\n", "x".repeat(OVERSIZED));
    // The server may have closed the connection already.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    timeout(TIMEOUT, stream.read_to_end(&mut answer)).await.ok().map(drop)?;
    Some(String::from_utf8_lossy(&answer).into_owned())
}
