//! The counters of a Redis about its own work.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

/// A Redis that can be asked.
#[derive(Clone, Copy)]
pub(super) struct Teller(pub(super) SocketAddr);

/// Scripts run, since its start or between two looks.
#[derive(Clone, Copy, Default)]
pub(super) struct Counters {
    /// Their number. Each is one round trip; there are no others on the way of a request.
    pub(super) scripts: f64,
    /// Their time, in microseconds.
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
