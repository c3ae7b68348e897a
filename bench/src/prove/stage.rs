//! Installations for the rounds.

use std::{path::PathBuf, time::Duration};

use shared::money::NanoUsd;
use tests::{
    harness::{Deployment, Form, Options},
    upstream::Keep,
};

/// The shortest lease allowed, since the run waits for a killed gateway's holds.
const LEASE: Duration = Duration::from_secs(3);
/// Number of gateways and of key-services in an installation of services.
const GATEWAYS: usize = 3;
const KEY_SERVICES: usize = 2;
/// Seconds that a process gives its running requests after it is asked to end: less than the duration of the slowest
/// streams.
const DRAIN: &str = "1";
/// Number of entries to keep in each journal, so that the books can be compared completely.
const JOURNAL: &str = "5000000";

/// An installation, and the faults that can happen to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Stage {
    /// Three gateways, two key-services, one Redis.
    Services,
    /// The same, with a replica of Redis that is waited for and takes over
    Failover,
    /// The same, with two replicas that are both waited for, and a Sentinel
    Sentinel,
    /// The same without waiting: what a replica that takes over had not received is lost, as docs/store.md says
    Lagging,
    /// Services with a cluster of three masters, each with a replica that is waited for
    Cluster,
    /// Like the first, but each key-service has its own wall clock
    Clocks,
    /// `faregate` over SQLite.
    Sqlite,
}

impl Stage {
    /// Stages in the order of seeds.
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

    /// Returns the stage of a round with this seed, chosen from `only` unless that is empty.
    pub(super) fn of(seed: u64, only: &[Self]) -> Self {
        let stages = if only.is_empty() { &Self::ALL[..] } else { only };
        stages[usize::try_from(seed % stages.len() as u64).expect("it is an index")]
    }

    /// Returns whether a replica that takes over may lack what was answered.
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

    /// Returns the number of replicas to wait for: all of a master's, since any of them may take over.
    const fn awaited(self) -> Option<&'static str> {
        match self {
            Self::Failover | Self::Cluster => Some("1"),
            Self::Sentinel => Some("2"),
            Self::Services | Self::Lagging | Self::Clocks | Self::Sqlite => None,
        }
    }

    /// Returns the settings of the installation.
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

    /// Returns the credit of the account whose keys garbage is sent with.
    pub(super) fn garbage_credit() -> NanoUsd {
        tests::harness::usd("20")
    }
}

/// Returns the form of Redis that a stage's services use.
const fn form(stage: Stage) -> Form {
    match stage {
        Stage::Failover => Form::WithReplica,
        Stage::Sentinel | Stage::Lagging => Form::Watched,
        Stage::Cluster => Form::ClusterWithReplicas,
        Stage::Services | Stage::Clocks | Stage::Sqlite => Form::Alone,
    }
}
