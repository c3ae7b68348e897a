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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Three gateways, two key-services, one Redis.
    Services,
    /// The same, with a replica of Redis that is awaited and takes over.
    Failover,
    /// The same as the first, and each key-service has a wall clock of its own.
    Clocks,
    /// `faregate` over SQLite.
    Sqlite,
}

impl Stage {
    /// Stages in the order of seeds.
    const ALL: [Self; 6] =
        [Self::Services, Self::Sqlite, Self::Services, Self::Failover, Self::Services, Self::Clocks];

    /// The stage of a round with this seed.
    pub(super) fn of(seed: u64) -> Self {
        Self::ALL[usize::try_from(seed % Self::ALL.len() as u64).expect("it is an index")]
    }

    /// Settings of the installation.
    pub(super) fn options(self, beside: Option<PathBuf>) -> Options {
        let services =
            Deployment::Services { gateways: GATEWAYS, key_services: KEY_SERVICES, redis: form(self) };
        let mut env = vec![
            ("FAREGATE_DRAIN_SECONDS", DRAIN.to_owned()),
            ("FAREGATE_REDIS_JOURNAL_ENTRIES", JOURNAL.to_owned()),
        ];
        if self == Self::Failover {
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
        Stage::Services | Stage::Clocks | Stage::Sqlite => Form::Alone,
    }
}
