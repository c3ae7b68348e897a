//! Compares this build's programs with another build's, with the same installations and work, in turn.

use std::{
    fmt::{self, Display, Formatter},
    fs,
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{
    extent::{KEYS, MANY, Part, Plan},
    installation::{Installation, Setup},
    load::{Target, Work},
    redis, report,
    system::{Measured, System, measure, upstream},
};

/// Numbers of concurrent whole requests.
const AT_ONCE: [u32; 3] = [1, 16, MANY];
/// Name of this program in the other build's directory. Installations use the programs in the directory of the program
/// that starts them.
const STARTER: &str = "bench-starter";
/// Kinds of processes in an installation.
const PARTS: [&str; 3] = ["gateway", "key-service", "redis"];

/// The processes of an installation that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// `faregate` on SQLite
    Faregate,
    /// `faregate` on Redis
    FaregateRedis,
    /// A gateway, a key-service and a Redis
    Services,
    /// Two gateways, two key-services and a Redis
    Two,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Faregate => report::FAREGATE,
            Self::FaregateRedis => report::FAREGATE_REDIS,
            Self::Services => report::SERVICES,
            Self::Two => report::TWO,
        }
    }

    const fn setup(self) -> Setup {
        match self {
            Self::Faregate => Setup::AllInOne,
            Self::FaregateRedis => Setup::AllInOneOverRedis,
            Self::Services => Setup::SERVICES,
            Self::Two => Setup::Services { each: 2, journal: None },
        }
    }
}

/// What the starting process reports about an installation.
#[derive(Serialize, Deserialize)]
struct Started {
    addresses: Vec<SocketAddr>,
    key: String,
    bounded: String,
    keys: Vec<String>,
    /// Name and process id of each part.
    parts: Vec<(String, u32)>,
    redis: Option<SocketAddr>,
}

/// Starts an installation with the programs in this program's directory, prints its addresses, and keeps it running
/// until standard input ends.
pub async fn keep(kind: Kind, upstream: SocketAddr) {
    let installation = Installation::start(kind.setup(), upstream).await;
    let has_many = kind == Kind::Services;
    let started = Started {
        addresses: installation.addresses(),
        key: installation.key.clone(),
        bounded: installation.make_bounded_key().await,
        keys: if has_many { installation.make_keys(KEYS).await } else { Vec::new() },
        parts: installation.parts().into_iter().map(|part| (part.name.to_owned(), part.pid)).collect(),
        redis: installation.redis().map(|redis::Teller(address)| address),
    };
    println!("{}", serde_json::to_string(&started).expect("it is plain data"));
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let _ = ended.await;
}

/// An installation that another process started. It ends when this is dropped.
struct Kept {
    child: Child,
    started: Started,
}

impl Kept {
    fn start(program: &Path, kind: Kind, upstream: SocketAddr) -> Self {
        let kind = kind.to_possible_value().expect("every kind has a name");
        let mut child = Command::new(program)
            .args(["keep", kind.get_name(), &upstream.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{} can be started: {e}", program.display()));
        let mut line = String::new();
        let printed = child.stdout.take().expect("it is piped");
        BufReader::new(printed).read_line(&mut line).expect("it prints a line");
        let started =
            serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line:?} says what started: {e}"));
        Self { child, started }
    }

    fn system(&self, name: &'static str, keys: Vec<String>) -> System {
        let Started { addresses, parts, redis, .. } = &self.started;
        let part = |(name, pid): &(String, u32)| Part {
            name: PARTS.into_iter().find(|part| part == name).expect("a part is of a known kind"),
            pid: *pid,
        };
        System {
            name,
            target: Target::new(addresses.clone(), keys),
            parts: parts.iter().map(part).collect(),
            redis: redis.map(redis::Teller),
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The figures of both builds, for each system and kind of work.
pub struct Comparison(Vec<Row>);

struct Row {
    system: &'static str,
    at_once: u32,
    /// Names of the system's processes.
    parts: Vec<&'static str>,
    /// For each round, the other build's measurement, followed by this build's.
    rounds: Vec<[Measured; 2]>,
}

/// Measures one kind of installation after the other. For each, the programs in `folder` and this build's programs take
/// turns.
pub async fn run(folder: &Path, kinds: &[Kind], plan: &Plan) -> Comparison {
    let upstream = upstream().await;
    let here = std::env::current_exe().expect("an executable has a path");
    let there = folder.join(STARTER);
    fs::copy(&here, &there).unwrap_or_else(|e| panic!("{} can be written: {e}", there.display()));
    let mut rows = Vec::new();
    for kind in kinds {
        let both = [&there, &here].map(|program| Kept::start(program, *kind, upstream.address));
        let systems = |name, keys: fn(&Started) -> Vec<String>| {
            both.each_ref().map(|kept| kept.system(name, keys(&kept.started)))
        };
        let one = systems(kind.name(), |started| vec![started.key.clone()]);
        let bounded = systems(report::BOUNDED, |started| vec![started.bounded.clone()]);
        let many = systems(report::MANY_KEYS, |started| started.keys.clone());
        let mut cells: Vec<_> = AT_ONCE.map(|at_once| (&one, at_once)).into();
        if *kind == Kind::Services {
            cells.extend([(&bounded, 1), (&bounded, MANY), (&many, MANY)]);
        }
        let start = rows.len();
        rows.extend(cells.iter().map(|([system, _], at_once)| Row {
            system: system.name,
            at_once: *at_once,
            parts: system.parts.iter().map(|part| part.name).collect(),
            rounds: Vec::new(),
        }));
        let duration = Duration::from_secs(plan.seconds.into());
        for _ in 0..plan.rounds {
            for ([other, this], row) in cells.iter().map(|(systems, _)| systems).zip(&mut rows[start..]) {
                let work = Work::Whole { at_once: row.at_once };
                let other = measure(other, work, duration).await;
                row.rounds.push([other, measure(this, work, duration).await]);
            }
        }
    }
    fs::remove_file(&there).unwrap_or_else(|e| panic!("{} can be removed: {e}", there.display()));
    Comparison(rows)
}

impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "Each pair: the other build, this build. CPU is of all processes of an installation.\n")?;
        writeln!(
            f,
            "| system | at once | CPU, µs | × (least to most of the rounds) | {} | a second | p50, ms | p99, ms | failed |",
            PARTS.map(|part| format!("{part}, µs")).join(" | ")
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|---|---|")?;
        self.0.iter().try_for_each(|row| row.write(f))
    }
}

impl Row {
    fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut ratios: Vec<f64> =
            self.rounds.iter().map(|[other, this]| this.micros() / other.micros()).collect();
        ratios.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (ratios.first(), ratios.last()) else { return Ok(()) };
        let median = ratios[ratios.len() / 2];
        let mut sums = [Measured::default(), Measured::default()];
        for round in &self.rounds {
            sums.iter_mut().zip(round).for_each(|(sum, measured)| sum.add(measured));
        }
        let pair = |figure: &dyn Fn(&Measured) -> String| sums.each_ref().map(figure).join(", ");
        let millis = |measured: &Measured, percent| measured.load.percentile(percent).as_secs_f64() * 1e3;
        let of_part = |part| {
            if !self.parts.contains(&part) {
                return "–".to_owned();
            }
            pair(&|sum| format!("{:.1}", sum.micros_of(part, &self.parts)))
        };
        let parts = PARTS.map(of_part);
        writeln!(
            f,
            "| {} | {} | {} | {median:.3} ({least:.3} to {most:.3}) | {} | {} | {} | {} | {} |",
            self.system,
            self.at_once,
            pair(&|sum| format!("{:.1}", sum.micros())),
            parts.join(" | "),
            pair(&|sum| format!("{:.0}", sum.per_second())),
            pair(&|sum| format!("{:.3}", millis(sum, 50))),
            pair(&|sum| format!("{:.3}", millis(sum, 99))),
            pair(&|sum| sum.load.failed.to_string()),
        )
    }
}
