//! The ledger: batches of commands, due holds, and the clock of Redis.

use async_trait::async_trait;
use redis::{Cmd, cmd, pipe};
use shared::{
    ids::{AccountId, GenerationId, KeyId},
    time::Timestamp,
};

use super::{
    Redis,
    batch::Batch,
    durability::Survives,
    records::{self, FUNDS, FundsRecord, Scanned},
};
use crate::store::{
    Cursor, DueHold, DueHolds, HoldIndex, Ledger, Outcomes, Skew, StoreError, latency::timed,
};
use domain::ledger::Command;

/// Holds on a page, which takes a fraction of a millisecond of Redis.
const HOLDS_AT_ONCE: usize = 500;

#[async_trait]
impl Ledger for Redis {
    fn system(&self) -> &'static str {
        "redis"
    }

    async fn execute(
        &self,
        account: AccountId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<Outcomes, StoreError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let _timed = timed("ledger");
        let (client, key_space) = (&self.client, &self.key_space);
        self.index.list(client, key_space, account, &commands).await?;
        let (ledger, chained, kept) = (&self.scripts.ledger, &self.chained, self.kept);
        let event_bounds = self.event_bounds(now);
        let batch = Batch { client, ledger, chained, key_space, kept, event_bounds, account, now };
        let outcomes = batch.execute(&commands).await?;
        if commands.iter().any(must_survive) {
            self.confirm_account(account).await?;
        } else if commands.iter().any(changes) {
            self.replicate_account(account).await?;
        }
        Ok(outcomes)
    }

    async fn accounts_with_holds(&self) -> HoldIndex {
        self.index.accounts(&self.client, &self.key_space).await
    }

    async fn due_holds(&self, account: AccountId, after: Option<Cursor>) -> Result<DueHolds, StoreError> {
        let cursor = after.map_or_else(|| "0".to_owned(), |cursor| cursor.0);
        let mut question = pipe();
        question.cmd("HGET").arg(self.key_space.account(account)).arg(FUNDS);
        question.add_command(self.scan_holds(account, &cursor));
        let (funds, (next, found)): (Option<Vec<u8>>, Scanned) = self.client.ask_all(&question).await?;
        let Some(funds) = funds else { return Ok(DueHolds::default()) };
        let tick = FundsRecord::read(&funds)?.tick;
        let holds = found.iter().filter_map(|(generation, record)| {
            let generation = GenerationId::from_slice(generation)?;
            match records::read_hold(record) {
                Some(hold) if hold.lease_until > tick => None,
                Some(hold) => Some(DueHold { key: hold.key, generation }),
                None => Some(DueHold { key: KeyId::from_slice(&[0; 16])?, generation }),
            }
        });
        Ok(DueHolds { holds: holds.collect(), next: (next != "0").then_some(Cursor(next)) })
    }

    /// Our clock minus that of the server that differs most.
    async fn clock_skew(&self) -> Result<Option<Skew>, StoreError> {
        let asked = self.clock.now();
        let answers = self.client.ask_masters(cmd("TIME")).await?;
        let ours = i64::midpoint(asked.millis(), self.clock.now().millis());
        let mut most = Skew { millis: 0 };
        for answer in answers {
            let (seconds, micros): (i64, i64) = redis::from_redis_value(answer)?;
            let millis = ours.saturating_sub(seconds.saturating_mul(1000).saturating_add(micros / 1000));
            if millis.unsigned_abs() > most.millis.unsigned_abs() {
                most = Skew { millis };
            }
        }
        Ok(Some(most))
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.client.ask::<()>(&cmd("PING")).await?;
        // Without replicas that are awaited, nothing is written.
        let barrier = self.key_space.readiness();
        Ok(self.durability.pass(&self.client, cmd("SET").arg(barrier).arg(""), Survives::Failover).await?)
    }
}

impl Redis {
    /// Command that reads a page of an account's holds.
    pub(super) fn scan_holds(&self, account: AccountId, cursor: &str) -> Cmd {
        let mut scan = cmd("HSCAN");
        scan.arg(self.key_space.holds(account)).arg(cursor).arg("COUNT").arg(HOLDS_AT_ONCE);
        scan
    }
}

/// Returns whether the command moves money, so that its effect must be on disk before the answer. A hold that is lost
/// with its Redis has moved none.
fn must_survive(command: &Command) -> bool {
    match command {
        Command::Deposit { .. } | Command::Capture { .. } | Command::Expire { .. } => true,
        Command::Tick { .. }
        | Command::Check { .. }
        | Command::Hold(_)
        | Command::Extend { .. }
        | Command::Release { .. } => false,
    }
}

/// Returns whether the command may change money or holds. Replicas that are awaited must have holds as well: the processes that a
/// failover leaves running would go on to spend what a forgotten hold had set aside.
fn changes(command: &Command) -> bool {
    match command {
        Command::Deposit { .. }
        | Command::Hold(_)
        | Command::Extend { .. }
        | Command::Capture { .. }
        | Command::Release { .. }
        | Command::Expire { .. } => true,
        Command::Tick { .. } | Command::Check { .. } => false,
    }
}
