//! Installations of the rounds.

use std::{path::PathBuf, time::Duration};

use shared::money::NanoUsd;
use tests::{
    harness::{Deployment, Form, Options},
    upstream::Keep,
};

/// The least lease that is allowed, since a killed gateway's holds are waited for.
const LEASE: Duration = Duration::from_secs(3);
/// Gateways and key-services of an installation of services.
const GATEWAYS: usize = 3;
const KEY_SERVICES: usize = 2;
/// Seconds that a process which is asked to end gives to what runs: less than the slowest streams last.
const DRAIN: &str = "1";
/// Entries of each journal that are kept, so that the books can be compared whole.
const JOURNAL: &str = "5000000";

/// An installation, and the faults that it can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Stage {
    /// Three gateways, two key-services, one Redis.
    Services,
    /// The same, with a replica of Redis that is awaited and takes over.
    Failover,
    /// The same, with two replicas of which one is awaited, and a Sentinel.
    Sentinel,
    /// The same, and none is awaited: what a replica that takes over had not received is lost, as docs/store.md says.
    Lagging,
    /// Services with a cluster of three masters, each with a replica that is awaited.
    Cluster,
    /// The same as the first, and each key-service has a wall clock of its own.
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

    /// The stage of a round with this seed, one of these if there are some.
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

    /// Settings of the installation.
    pub(super) fn options(self, beside: Option<PathBuf>) -> Options {
        let services =
            Deployment::Services { gateways: GATEWAYS, key_services: KEY_SERVICES, redis: form(self) };
        let mut env = vec![
            ("FAREGATE_DRAIN_SECONDS", DRAIN.to_owned()),
            ("FAREGATE_REDIS_JOURNAL_ENTRIES", JOURNAL.to_owned()),
        ];
        if matches!(self, Self::Failover | Self::Sentinel | Self::Cluster) {
            env.push(("FAREGATE_REDIS_WAIT_REPLICAS", "1".to_owned()));
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

    /// Credit of the account that garbage is sent for.
    pub(super) fn garbage_credit() -> NanoUsd {
        tests::harness::usd("20")
    }
}

/// The form of Redis under a stage's services.
const fn form(stage: Stage) -> Form {
    match stage {
        Stage::Failover => Form::WithReplica,
        Stage::Sentinel | Stage::Lagging => Form::Watched,
        Stage::Cluster => Form::ClusterWithReplicas,
        Stage::Services | Stage::Clocks | Stage::Sqlite => Form::Alone,
    }
}
