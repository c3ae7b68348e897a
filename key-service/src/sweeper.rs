//! Expires the holds that nobody resolved: their gateway died, or lost us for longer than a lease.

use std::{collections::HashMap, sync::Arc, time::Duration};

use shared::{clock::Clock, ids::AccountId};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::{
    domain::ledger::{Command, Outcome},
    service::count_billed,
    store::{Store, Unavailable},
};

/// Pause between two looks: an expiry is noticed within a second.
const PERIOD: Duration = Duration::from_millis(500);
/// Holds expired at once; more follow at once, in another batch.
const BATCH: usize = 512;

/// Expires holds until `shutdown`. Several sweepers on one store do no harm: expiry is idempotent.
pub async fn run(store: Arc<dyn Store>, clock: Arc<dyn Clock>, shutdown: CancellationToken) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = ticks.tick() => {}
        }
        if let Err(e) = sweep(&*store, &*clock).await {
            tracing::warn!(error = %e, "cannot expire holds; trying again");
        }
    }
}

async fn sweep(store: &dyn Store, clock: &dyn Clock) -> Result<(), Unavailable> {
    loop {
        let now = clock.now();
        let due = store.due_holds(now, BATCH).await?;
        let full = due.len() == BATCH;
        let mut accounts: HashMap<AccountId, Vec<Command>> = HashMap::new();
        for hold in due {
            let command = Command::Expire { key: hold.key, generation: hold.generation };
            accounts.entry(hold.account).or_default().push(command);
        }
        for (account, commands) in accounts {
            for outcome in store.execute(account, commands, now).await? {
                report(account, outcome.ok());
            }
        }
        if !full {
            return Ok(());
        }
    }
}

fn report(account: AccountId, outcome: Option<Outcome>) {
    if let Some(Outcome::Expired(settlement)) = outcome {
        metrics::counter!("keyservice_expired_holds_total").increment(1);
        count_billed(settlement.model.clone(), settlement.charged, settlement.shortfall());
        tracing::warn!(
            %account,
            key = %settlement.key,
            model = settlement.model,
            charged_usd = %settlement.charged,
            "a hold expired; billed what was last reported"
        );
    }
}
