//! Counters that a Redis keeps.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

/// A Redis whose counters can be read.
#[derive(Clone, Copy)]
pub(super) struct Teller(pub(super) SocketAddr);

/// Counts of scripts since Redis started, or between two readings.
#[derive(Clone, Copy, Default)]
pub(super) struct Counters {
    /// Number of scripts. Each is one round trip, and a request makes no other round trips.
    pub(super) scripts: f64,
    /// Time spent in scripts, in microseconds.
    pub(super) micros: f64,
}

impl Teller {
    pub(super) fn ask(&self) -> Counters {
        let mut stream = TcpStream::connect(self.0).expect("Redis accepts connections");
        stream.write_all(b"INFO commandstats\r\nQUIT\r\n").unwrap();
        let mut stats = String::new();
        stream.read_to_string(&mut stats).unwrap();
        let mut sum = Counters::default();
        for line in stats
            .lines()
            .filter(|line| line.starts_with("cmdstat_evalsha:") || line.starts_with("cmdstat_fcall:"))
        {
            let field = |name: &str| {
                let rest = line.split(['=', ',', ':']).skip_while(|word| *word != name).nth(1);
                rest.map_or(0.0, |number| number.parse().expect("it is a number"))
            };
            sum.add(Counters { scripts: field("calls"), micros: field("usec") });
        }
        sum
    }
}

impl Counters {
    pub(super) fn since(self, before: Self) -> Self {
        Self { scripts: self.scripts - before.scripts, micros: self.micros - before.micros }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.scripts += other.scripts;
        self.micros += other.micros;
    }
}
