//! Causes faults one after the other, in the order that the seed decides.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use tests::{
    garbage::Rng,
    harness::{Answer, Loss, PATIENCE, Server, Stack},
};
use tokio::time::sleep;

use super::stage::Stage;

/// How long a fault has effects after its end: until connections are re-established and holds have expired.
const AFTERWARDS: Duration = Duration::from_secs(5);
/// Time within which a write reaches the replicas, and within which a master sends the answer to a command that it has
/// executed.
const UNSENT: Duration = Duration::from_secs(1);
/// Maximum step of a clock in seconds. A key-service whose clock differs by more than that from its store's clock is
/// not ready.
const STEP: i64 = 8;
/// Number of seconds by which a clock is ahead during [`WRONG_FOR`]. This is longer than bills of captures are kept.
const HOURS_AHEAD: i64 = 5 * 60 * 60;
const WRONG_FOR: Duration = Duration::from_secs(2);
/// How long a spool's disk is full. This is longer than the two seconds after which an unconfirmed capture is written
/// to the spool.
const WITHOUT_ROOM: Duration = Duration::from_millis(2_600);

/// Metric that counts captures that are neither confirmed nor in the spool.
const IN_MEMORY_ALONE: &str = "gateway_captures_in_memory_alone";

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    KillGateway,
    KillKeyService,
    KillStore,
    HangGateway,
    HangKeyService,
    HangStore,
    RestartGateway,
    RestartKeyService,
    FullMemory,
    FullDisk,
    Failover,
    HangMaster,
    CutOffMaster,
    ClockStep,
    ClockHoursAhead,
}

impl Kind {
    /// Returns the description of the kind of fault in the table.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::KillGateway => "kills (SIGKILL) of a gateway or of `faregate`",
            Self::KillKeyService => "kills of a key-service",
            Self::KillStore => "kills of Redis",
            Self::HangGateway => "stops (SIGSTOP) of a gateway",
            Self::HangKeyService => "stops of a key-service",
            Self::HangStore => "stops of Redis",
            Self::RestartGateway => "restarts (SIGTERM) of a gateway",
            Self::RestartKeyService => "restarts of a key-service",
            Self::FullMemory => "`maxmemory` reached",
            Self::FullDisk => "full disks",
            Self::Failover => "failovers to a replica (a kill of the master)",
            Self::HangMaster => "failovers from a master that is stopped (SIGSTOP)",
            Self::CutOffMaster => "failovers from a master that only key-services reach",
            Self::ClockStep => "steps of a clock",
            Self::ClockHoursAhead => "clocks that are five hours ahead for two seconds",
        }
    }

    /// Returns whether the fault kills a process.
    pub(super) const fn is_kill(self) -> bool {
        matches!(self, Self::KillGateway | Self::KillKeyService | Self::KillStore | Self::Failover)
    }

    /// Returns the kinds of fault that can happen in a stage, each with its weight in the draw.
    fn of(stage: Stage) -> &'static [(Self, usize)] {
        match stage {
            Stage::Services => &[
                (Self::KillGateway, 24),
                (Self::KillKeyService, 24),
                (Self::KillStore, 12),
                (Self::HangGateway, 6),
                (Self::HangKeyService, 6),
                (Self::HangStore, 3),
                (Self::RestartGateway, 6),
                (Self::RestartKeyService, 6),
                (Self::FullMemory, 5),
                (Self::FullDisk, 2),
            ],
            Stage::Sentinel | Stage::Lagging => &[
                (Self::Failover, 10),
                (Self::HangMaster, 10),
                (Self::CutOffMaster, 10),
                (Self::KillGateway, 8),
                (Self::KillKeyService, 8),
                (Self::HangKeyService, 4),
            ],
            Stage::Cluster => &[
                (Self::Failover, 12),
                (Self::HangMaster, 12),
                (Self::KillGateway, 8),
                (Self::KillKeyService, 8),
                (Self::HangKeyService, 4),
            ],
            Stage::Failover => &[
                (Self::Failover, 8),
                (Self::HangMaster, 6),
                (Self::KillGateway, 16),
                (Self::KillKeyService, 16),
                (Self::HangGateway, 5),
                (Self::RestartKeyService, 5),
            ],
            Stage::Clocks => &[
                (Self::ClockStep, 16),
                (Self::ClockHoursAhead, 4),
                (Self::KillGateway, 16),
                (Self::KillKeyService, 16),
                (Self::KillStore, 6),
                (Self::HangKeyService, 4),
            ],
            Stage::Sqlite => &[
                (Self::KillGateway, 30),
                (Self::HangGateway, 4),
                (Self::RestartGateway, 4),
                (Self::FullDisk, 5),
            ],
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Happened {
    pub(super) kind: Kind,
    /// Number of the process among the processes of its kind.
    which: usize,
    pub(super) from: Instant,
    pub(super) to: Instant,
}

impl Happened {
    /// Returns whether the fault may be the reason for an error of this gateway in this period.
    pub(super) fn explains(&self, gateway: usize, from: Instant, to: Instant) -> bool {
        let meanwhile = self.from < to && self.to + AFTERWARDS > from;
        let there = match self.kind {
            Kind::KillGateway | Kind::HangGateway | Kind::RestartGateway => self.which == gateway,
            Kind::KillKeyService
            | Kind::KillStore
            | Kind::HangKeyService
            | Kind::HangStore
            | Kind::RestartKeyService
            | Kind::FullMemory
            | Kind::FullDisk
            | Kind::Failover
            | Kind::HangMaster
            | Kind::CutOffMaster
            // While a key-service's clock is this far from its store's, the key-service is not ready.
            | Kind::ClockHoursAhead => true,
            Kind::ClockStep => false,
        };
        meanwhile && there
    }

    /// Returns whether a replica took over without changes that a master may have confirmed in this period.
    pub(super) fn loses(&self, from: Instant, to: Instant) -> bool {
        matches!(self.kind, Kind::Failover | Kind::HangMaster | Kind::CutOffMaster)
            && self.from < to + UNSENT
            && self.to > from
    }

    /// Returns whether the fault killed, stopped or restarted this gateway, which served the request, in this period.
    pub(super) fn cuts(&self, gateway: usize, from: Instant, to: Instant) -> bool {
        let own = matches!(self.kind, Kind::KillGateway | Kind::HangGateway | Kind::RestartGateway);
        own && self.which == gateway && self.from < to && self.to > from
    }
}

/// Counts the faults by their kind.
pub(super) fn counts(happened: &[Happened]) -> BTreeMap<Kind, u64> {
    let mut counts = BTreeMap::new();
    for fault in happened {
        *counts.entry(fault.kind).or_insert(0) += 1;
    }
    counts
}

/// Causes faults until `until`. When this returns, all processes run again.
pub(super) async fn fail(stack: &Stack, stage: Stage, mut rng: Rng, until: Instant) -> Vec<Happened> {
    let (kinds, mut happened) = (Kind::of(stage), Vec::new());
    while Instant::now() < until {
        sleep(Duration::from_millis(150 + rng.below(450) as u64)).await;
        let mut draw = rng.below(kinds.iter().map(|(_, weight)| weight).sum());
        let drawn = kinds.iter().find(|(_, weight)| {
            let found = draw < *weight;
            draw = draw.wrapping_sub(*weight);
            found
        });
        let (kind, _) = *drawn.expect("a draw is below the sum");
        let which = match kind {
            Kind::KillGateway | Kind::HangGateway | Kind::RestartGateway | Kind::FullDisk => {
                rng.below(stack.gateways.len())
            }
            Kind::KillKeyService
            | Kind::HangKeyService
            | Kind::RestartKeyService
            | Kind::ClockStep
            | Kind::ClockHoursAhead => rng.below(stack.key_services.len()),
            Kind::Failover | Kind::HangMaster | Kind::CutOffMaster => rng.below(stack.redis().masters()),
            Kind::KillStore | Kind::HangStore | Kind::FullMemory => 0,
        };
        // Most faults are short. Some last longer than a lease.
        let longest = if rng.percent(6) { 4_000 } else { 500 };
        let lasts = Duration::from_millis(30 + rng.below(longest) as u64);
        let step = i64::try_from(rng.below(16)).expect("it is small") - STEP;
        let from = Instant::now();
        happen(stack, (kind, which), lasts, step).await;
        happened.push(Happened { kind, which, from, to: Instant::now() });
    }
    stack.clocks.iter().for_each(|clock| clock.set(0));
    happened
}

async fn happen(stack: &Stack, (kind, which): (Kind, usize), lasts: Duration, step: i64) {
    let (gateways, key_services) = (&stack.gateways, &stack.key_services);
    match kind {
        Kind::KillGateway => killed(&gateways[which], lasts).await,
        Kind::KillKeyService => killed(&key_services[which], lasts).await,
        Kind::KillStore => {
            stack.redis().kill();
            sleep(lasts).await;
            stack.redis().restart().await;
        }
        Kind::HangGateway => hung(&gateways[which], lasts).await,
        Kind::HangKeyService => hung(&key_services[which], lasts).await,
        Kind::HangStore => {
            stack.redis().hang();
            sleep(lasts).await;
            stack.redis().resume();
        }
        Kind::RestartGateway => ended(&gateways[which]).await,
        Kind::RestartKeyService => ended(&key_services[which]).await,
        Kind::FullMemory => {
            stack.redis().ask(0, "CONFIG SET maxmemory 1mb");
            sleep(lasts).await;
            stack.redis().ask(0, "CONFIG SET maxmemory 0");
        }
        Kind::FullDisk => {
            gateways[which].bound_files(Some(1));
            if key_services.is_empty() {
                sleep(lasts).await;
            } else {
                // The gateway writes to its spool only while charges are not confirmed. So Redis stops too.
                stack.redis().hang();
                sleep(WITHOUT_ROOM).await;
                stack.redis().resume();
                nothing_in_memory_alone(stack, &gateways[which]).await;
            }
            gateways[which].bound_files(None);
            if key_services.is_empty() {
                // Neither the database nor the spool had space for these captures.
                nothing_in_memory_alone(stack, &gateways[which]).await;
            }
        }
        Kind::Failover => stack.redis().lose_master(which, Loss::Killed).await,
        Kind::HangMaster => stack.redis().lose_master(which, Loss::Hung).await,
        Kind::CutOffMaster => stack.redis().lose_master(which, Loss::CutOff).await,
        Kind::ClockStep => stack.clocks[which].set(step),
        Kind::ClockHoursAhead => {
            stack.clocks[which].set(HOURS_AHEAD);
            sleep(WRONG_FOR).await;
            stack.clocks[which].set(0);
        }
    }
}

async fn killed(server: &Server, lasts: Duration) {
    server.kill();
    sleep(lasts).await;
    server.restart_supervised().await;
}

async fn hung(server: &Server, lasts: Duration) {
    server.hang();
    sleep(lasts).await;
    server.resume();
}

async fn ended(server: &Server) {
    server.terminate();
    let _status = server.ended().await;
    server.restart_supervised().await;
}

/// Waits until a gateway whose spool has no space has delivered the captures that exist only in its memory. A power
/// failure now would lose them, as docs/run.md explains.
async fn nothing_in_memory_alone(stack: &Stack, gateway: &Server) {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let metrics = stack.http.try_get(&format!("{}/metrics", gateway.admin())).await;
        let waits = |answer: &Answer| {
            let mut lines = answer.text().lines();
            lines.any(|line| line.strip_prefix(IN_MEMORY_ALONE).is_some_and(|value| value.trim() != "0"))
        };
        if metrics.is_some_and(|answer| !waits(&answer)) {
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
}
