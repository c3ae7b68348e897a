//! The installations in which the rounds take place.

use std::{path::PathBuf, time::Duration};

use shared::money::NanoUsd;
use tests::{
    harness::{Deployment, Form, Options},
    upstream::Keep,
};

/// The shortest lease allowed, because the run waits until the holds of killed gateways have expired.
const LEASE: Duration = Duration::from_secs(3);
/// Numbers of gateways and of key-services in an installation with separate services.
const GATEWAYS: usize = 3;
const KEY_SERVICES: usize = 2;
/// Number of seconds for which a process that is asked to end waits for its running requests. The slowest streams last
/// longer than that.
const DRAIN: &str = "1";
/// Maximum number of entries in each journal. It is so large that no entry is dropped before the books are compared.
const JOURNAL: &str = "5000000";

/// An installation, in which certain kinds of fault can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Stage {
    /// Three gateways, two key-services, one Redis.
    Services,
    /// The same, but Redis has a replica that the services wait for and that takes over
    Failover,
    /// The same, but Redis has two replicas that the services wait for, and a Sentinel decides which one takes over
    Sentinel,
    /// The same, but the services wait for no replica: what a replica that takes over had not received is lost, as
    /// docs/store.md says
    Lagging,
    /// Services over a cluster of three masters, each with a replica that the services wait for
    Cluster,
    /// Like `services`, but each key-service has its own wall clock
    Clocks,
    /// `faregate` over SQLite.
    Sqlite,
}

impl Stage {
    /// The stages, in the order in which consecutive seeds choose them.
    const ALL: [Self; 9] = [
        Self::Services,
        Self::Sqlite,
        Self::Failover,
        Self::Clocks,
        Self::Services,
        Self::Sentinel,
        Self::Services,
        Self::Cluster,
        Self::Lagging,
    ];

    /// Returns the stage that this seed chooses among `only`, or among all stages if `only` is empty.
    pub(super) fn of(seed: u64, only: &[Self]) -> Self {
        let stages = if only.is_empty() { &Self::ALL[..] } else { only };
        stages[usize::try_from(seed % stages.len() as u64).expect("it is an index")]
    }

    /// Returns whether a replica that takes over may lack changes that were confirmed.
    pub(super) const fn loses(self) -> bool {
        match self {
            Self::Lagging => true,
            Self::Services
            | Self::Failover
            | Self::Sentinel
            | Self::Cluster
            | Self::Clocks
            | Self::Sqlite => false,
        }
    }

    /// Returns the number of replicas that the services wait for: all replicas of a master, because any of them may
    /// take over.
    const fn awaited(self) -> Option<&'static str> {
        match self {
            Self::Failover | Self::Cluster => Some("1"),
            Self::Sentinel => Some("2"),
            Self::Services | Self::Lagging | Self::Clocks | Self::Sqlite => None,
        }
    }

    /// Returns the options of the stack that a round starts.
    pub(super) fn options(self, beside: Option<PathBuf>) -> Options {
        let services =
            Deployment::Services { gateways: GATEWAYS, key_services: KEY_SERVICES, redis: form(self) };
        let mut env = vec![
            ("FAREGATE_DRAIN_SECONDS", DRAIN.to_owned()),
            ("FAREGATE_REDIS_JOURNAL_ENTRIES", JOURNAL.to_owned()),
        ];
        if let Some(awaited) = self.awaited() {
            env.push(("FAREGATE_REDIS_WAIT_REPLICAS", awaited.to_owned()));
        }
        Options {
            deployment: if self == Self::Sqlite { Deployment::AllInOne } else { services },
            lease: LEASE,
            env,
            clocks: if self == Self::Clocks { vec![0; KEY_SERVICES] } else { Vec::new() },
            keep: Keep::Counts,
            files_bounded: true,
            beside,
            ..Options::default()
        }
    }

    /// Returns the credit of the account whose keys the garbage carries.
    pub(super) fn garbage_credit() -> NanoUsd {
        tests::harness::usd("20")
    }
}

/// Returns the form of Redis that the services of a stage use.
const fn form(stage: Stage) -> Form {
    match stage {
        Stage::Failover => Form::WithReplica,
        Stage::Sentinel | Stage::Lagging => Form::Watched,
        Stage::Cluster => Form::ClusterWithReplicas,
        Stage::Services | Stage::Clocks | Stage::Sqlite => Form::Alone,
    }
}
