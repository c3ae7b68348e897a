//! What Redis counts of its own work.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

/// A Redis that can be asked.
#[derive(Clone, Copy)]
pub(super) struct Teller(pub(super) SocketAddr);

/// Counts since it was started, or between two looks.
#[derive(Clone, Copy, Default)]
pub(super) struct Counters {
    /// Scripts run. Each is one round trip; there are no others on the way of a request.
    pub(super) scripts: u32,
    /// What they took, in microseconds.
    pub(super) script_micros: f64,
}

impl Teller {
    pub(super) fn ask(&self) -> Counters {
        let stats = self.info("commandstats");
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap_or_default();
        let field = |name: &str| {
            let rest = line.split(['=', ',', ':']).skip_while(|word| *word != name).nth(1);
            rest.map_or(0.0, |number| number.parse().expect("it is a number"))
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count is small and whole"
        )]
        Counters { scripts: field("calls") as u32, script_micros: field("usec") }
    }

    /// Bytes that its data takes.
    pub(super) fn memory(&self) -> u64 {
        let memory = self.info("memory");
        let line = memory.lines().find_map(|line| line.strip_prefix("used_memory:"));
        line.and_then(|bytes| bytes.trim().parse().ok()).expect("Redis tells its memory")
    }

    fn info(&self, section: &str) -> String {
        let mut stream = TcpStream::connect(self.0).expect("Redis accepts connections");
        stream.write_all(format!("INFO {section}\r\nQUIT\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Counters {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            scripts: self.scripts - before.scripts,
            script_micros: self.script_micros - before.script_micros,
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.scripts += other.scripts;
        self.script_micros += other.script_micros;
    }
}
