//! Tests of expiring leases, with a simulated clock that advances only while all tasks wait.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use shared::{ids::KeyId, time::Timestamp};

use super::*;
use domain::{
    lease_clock::LEASE_TICKS,
    ledger::{
        Progress,
        histories::{START, generation},
    },
};
use key_service_management::testing::Office;
use key_service_store::store::{
    MissingServers, Outcomes, Skew, Store,
    suite::{hold, in_maps, make_key, nanos, open_account_with, spend},
};

const LEASE: Duration = Duration::from_secs(30);
/// Maximum time until an abandoned hold expires: a lease, a quantum and a pause.
const NOTICED: Duration = Duration::from_secs(30 + 5 + 1);
/// A time that is shorter than any that matters in a test.
const MOMENT: Duration = Duration::from_millis(50);
/// The time from a hold until just before the end of its lease.
const ALMOST: Duration = LEASE.saturating_sub(MOMENT);
/// Time from `ALMOST` until the latest possible expiry.
const REST: Duration = NOTICED.saturating_sub(ALMOST);

/// A store in memory whose parts can fail.
struct Faulty {
    sound: Arc<Store>,
    /// Whether the whole store fails, so that all calls fail.
    away: AtomicBool,
    /// The account whose commands are never answered, if any.
    hanging: Mutex<Option<AccountId>>,
    /// Holds that cannot be read.
    damaged: Mutex<HashSet<GenerationId>>,
}

impl Default for Faulty {
    fn default() -> Self {
        let (away, hanging, damaged) = (AtomicBool::new(false), Mutex::default(), Mutex::default());
        Self { sound: in_maps(), away, hanging, damaged }
    }
}

impl Faulty {
    fn answering(&self) -> Result<&Store, StoreError> {
        if self.away.load(Ordering::SeqCst) {
            Err(StoreError::Unavailable("away".into()))
        } else {
            Ok(&self.sound)
        }
    }
}

#[async_trait]
impl Ledger for Faulty {
    fn system(&self) -> &'static str {
        "faulty"
    }

    async fn execute(
        &self,
        account: AccountId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<Outcomes, StoreError> {
        if *self.hanging.lock() == Some(account) {
            std::future::pending::<()>().await;
        }
        let damaged = |command: &Command| match command {
            Command::Expire { generation, .. } => self.damaged.lock().contains(generation),
            _ => false,
        };
        let damaged: Vec<_> = commands.iter().map(damaged).collect();
        let sound = commands.into_iter().zip(&damaged).filter(|(_, damaged)| !**damaged).map(|(c, _)| c);
        let mut outcomes = self.answering()?.execute(account, sound.collect(), now).await?.into_iter();
        Ok(damaged
            .iter()
            .map(|damaged| if *damaged { Err(Refused::Damaged) } else { outcomes.next().unwrap() })
            .collect())
    }

    async fn accounts_with_holds(&self) -> HoldIndex {
        match self.answering() {
            Ok(sound) => sound.accounts_with_holds().await,
            Err(unavailable) => HoldIndex { accounts: Vec::new(), missing: Some(unavailable) },
        }
    }

    async fn due_holds(&self, account: AccountId, after: Option<Cursor>) -> Result<DueHolds, StoreError> {
        self.answering()?.due_holds(account, after).await
    }

    async fn clock_skew(&self) -> Result<Option<Skew>, StoreError> {
        Ok(None)
    }

    async fn ping(&self) -> Result<MissingServers, StoreError> {
        self.answering().map(|_| MissingServers::default())
    }
}

/// A ledger with an account and a key, on which sweepers run.
struct Trial {
    office: Office,
    store: Arc<Faulty>,
    account: AccountId,
    key: KeyId,
}

impl Trial {
    async fn begin() -> Self {
        let (office, store) = (Office::open(), Arc::new(Faulty::default()));
        let account = open_account_with(&store.sound, 1, 10_000).await;
        let key = make_key(&store.sound, account, 1, None).await;
        Self { office, store, account, key }
    }

    /// Starts a sweeper, which ends when the token is cancelled.
    fn sweep(&self) -> CancellationToken {
        let shutdown = CancellationToken::new();
        tokio::spawn(run(self.store.clone(), self.office.clock.clone(), LEASE, shutdown.clone()));
        shutdown
    }

    async fn execute(&self, command: Command) -> Outcome {
        let done = self.store.sound.execute(self.account, vec![command], START).await;
        done.unwrap().remove(0).unwrap()
    }

    async fn hold(&self, n: u8) {
        self.execute(hold(self.key, generation(n), 10, LEASE_TICKS)).await;
    }

    async fn extend(&self, n: u8) -> Outcome {
        let (key, generation, most) = (self.key, generation(n), nanos(10));
        let progress = Progress::default();
        self.execute(Command::Extend { key, generation, most, progress, lease_ticks: LEASE_TICKS }).await
    }

    /// Returns how much money open holds have, in nano-USD.
    async fn held(&self) -> i64 {
        spend(&self.store.sound, self.account, self.key).await.budget.held.nanos()
    }
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_hold_expires_after_its_lease_and_not_much_later() {
    let trial = Trial::begin().await;
    trial.sweep();
    // There is a first hold, a second hold right after it has expired, and a third hold after a long time without
    // holds.
    for (n, wait) in [(1, 700), (2, 0), (3, 60_000)] {
        sleep(Duration::from_millis(wait)).await;
        trial.hold(n).await;
        sleep(ALMOST).await;
        assert_eq!(trial.held().await, 10, "hold {n}");
        sleep(REST).await;
        assert_eq!(trial.held().await, 0, "hold {n}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_renewed_lives_on() {
    let trial = Trial::begin().await;
    trial.sweep();
    trial.hold(1).await;
    for _ in 0..20 {
        sleep(ALMOST).await;
        assert!(matches!(trial.extend(1).await, Outcome::Extended { .. }));
    }
    sleep(NOTICED).await;
    assert_eq!(trial.extend(1).await, Outcome::Gone);
}

#[tokio::test(start_paused = true)]
async fn clocks_that_step_expire_nothing() {
    let trial = Trial::begin().await;
    trial.sweep();
    trial.hold(1).await;
    for time in ["2031-01-01T00:00:00Z", "1999-01-01T00:00:00Z", "2027-01-01T00:00:00Z"] {
        trial.office.clock.set(time);
        sleep(LEASE / 4).await;
        assert_eq!(trial.held().await, 10);
    }
}

#[tokio::test(start_paused = true)]
async fn two_key_services_expire_no_hold_earlier_than_one() {
    let trial = Trial::begin().await;
    trial.sweep();
    sleep(Duration::from_millis(2_300)).await;
    trial.sweep();
    for n in 1..4 {
        sleep(Duration::from_millis(777)).await;
        trial.hold(n).await;
        sleep(ALMOST).await;
        assert_eq!(trial.held().await, 10);
        sleep(REST).await;
        assert_eq!(trial.held().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn time_in_which_the_ledger_is_away_does_not_count() {
    let trial = Trial::begin().await;
    trial.sweep();
    for (n, away) in [(1, 9), (2, 28), (3, 300)] {
        trial.hold(n).await;
        sleep(LEASE / 2).await;
        trial.store.away.store(true, Ordering::SeqCst);
        sleep(Duration::from_secs(away)).await;
        trial.store.away.store(false, Ordering::SeqCst);
        sleep((LEASE / 2).saturating_sub(MOMENT)).await;
        assert_eq!(trial.held().await, 10, "{away} s away");
        // An outage delays the expiry by its own length and, at most, the interrupted quantum.
        sleep(REST + LEASE / 6).await;
        assert_eq!(trial.held().await, 0, "{away} s away");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_start_a_renewal_comes_before_an_expiry() {
    let trial = Trial::begin().await;
    let first = trial.sweep();
    trial.hold(1).await;
    sleep(LEASE).await;
    first.cancel();
    sleep(Duration::from_hours(1)).await;
    trial.sweep();
    sleep((LEASE / 6).saturating_sub(MOMENT)).await;
    assert!(matches!(trial.extend(1).await, Outcome::Extended { .. }));
    sleep(ALMOST).await;
    assert_eq!(trial.held().await, 10);
}

#[tokio::test(start_paused = true)]
async fn an_account_that_is_away_keeps_no_other_from_expiring() {
    let trial = Trial::begin().await;
    let other = open_account_with(&trial.store.sound, 2, 100).await;
    let key = make_key(&trial.store.sound, other, 2, None).await;
    let held = hold(key, generation(1), 10, LEASE_TICKS);
    trial.store.sound.execute(other, vec![held], START).await.unwrap();
    *trial.store.hanging.lock() = Some(other);
    trial.sweep();
    trial.hold(1).await;
    sleep(NOTICED).await;
    assert_eq!(trial.held().await, 0);
    let waiting = trial.store.sound.key(other, key).await.unwrap().unwrap();
    assert_eq!(waiting.spend.budget.held, nanos(10));
}

#[tokio::test(start_paused = true)]
async fn holds_that_cannot_be_expired_hide_none_behind_them() {
    let trial = Trial::begin().await;
    let many: Vec<_> =
        (0..700_u64).map(|n| GenerationId::new(START.plus(Duration::from_secs(n)), [0; 10])).collect();
    for generation in &many {
        trial.execute(hold(trial.key, *generation, 1, LEASE_TICKS)).await;
    }
    // There are more damaged records than fit on a page, and they all come first.
    trial.store.damaged.lock().extend(&many[..600]);
    trial.sweep();
    sleep(NOTICED).await;
    assert_eq!(trial.held().await, 600);
    // After their repair, the holds expire at the next tick.
    trial.store.damaged.lock().clear();
    sleep(LEASE / 6 + Duration::from_secs(1)).await;
    assert_eq!(trial.held().await, 0);
}
