//! Checks that bills count only once, even if they are delivered again and clocks are hours off.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use domain::ledger::{
    Account, Command, Ending, Key, Outcome, Progress, Settlement,
    histories::{START, account, key, new_hold},
};
use records::maps::Maps;
use shared::{
    clock::{Clock, System},
    ids::{AccountId, GenerationId},
    money::NanoUsd,
    time::Timestamp,
};
use tokio::time::{Instant, sleep};

use super::KEPT;
use crate::{
    error::StoreError,
    lanes::{house::EVERY, lane::Lanes},
};

const COST: NanoUsd = NanoUsd::from_nanos(7);

/// A clock that advances with the runtime's time, and is off by some hours.
struct Wrist {
    began: Instant,
    hours: AtomicI64,
}

impl Clock for Wrist {
    fn now(&self) -> Timestamp {
        let off = self.hours.load(Ordering::SeqCst) * 60 * 60 * 1_000;
        Timestamp::from_millis(START.plus(self.began.elapsed()).millis() + off)
    }

    fn random(&self, bytes: &mut [u8]) {
        System.random(bytes);
    }
}

/// A process with an account and a key.
struct Desk {
    clock: Arc<Wrist>,
    lanes: Lanes,
}

impl Desk {
    async fn open() -> Self {
        let clock = Arc::new(Wrist { began: Instant::now(), hours: AtomicI64::new(0) });
        let lanes = Lanes::new(Arc::new(Maps::default()), Arc::clone(&clock) as Arc<dyn Clock>, KEPT);
        let credit = NanoUsd::from_usd(1);
        let made = lanes.change::<_, StoreError>(mine(), |change| {
            change.account()?;
            change.key(key(1))?;
            change.set_account(Account { credit, ..Account::default() });
            change.set_key(key(1), Key::default());
            Ok(())
        });
        made.await.unwrap();
        Self { clock, lanes }
    }

    fn is_off_by(&self, hours: i64) {
        self.clock.hours.store(hours, Ordering::SeqCst);
    }

    async fn run(&self, command: Command) -> Outcome {
        self.lanes.execute(mine(), vec![command], self.clock.now()).await.unwrap().remove(0).unwrap()
    }

    /// Holds and captures a new generation.
    async fn bill(&self) -> (GenerationId, Settlement) {
        let generation = GenerationId::generate(&*self.clock);
        self.run(Command::Hold(new_hold(key(1), generation, COST))).await;
        (generation, self.capture(generation).await)
    }

    async fn capture(&self, generation: GenerationId) -> Settlement {
        let (model, total) = ("Model Flash".into(), Progress { cost: COST, ..Progress::default() });
        let capture =
            Command::Capture { key: key(1), generation, model, total, chargeable: None, estimated: false };
        match self.run(capture).await {
            Outcome::Captured(settlement) => settlement,
            outcome => panic!("{outcome:?}"),
        }
    }

    /// Returns the amount that the key has used.
    async fn used(&self) -> NanoUsd {
        let read =
            self.lanes.change::<_, StoreError>(mine(), |change| Ok(change.key(key(1))?.unwrap_or_default()));
        read.await.unwrap().budget.used
    }
}

fn mine() -> AccountId {
    account(1)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waited_is_decided_at_the_time_of_its_decision() {
    let desk = Desk::open().await;
    let lane = desk.lanes.lane(mine());
    let (busy, waited) = (lane.view.lock().await, Duration::from_secs(1));
    let generation = GenerationId::generate(&*desk.clock);
    let wait = async {
        sleep(waited).await;
        drop(busy);
    };
    let (billed, ()) = tokio::join!(desk.capture(generation), wait);
    assert_eq!(billed.at, START.plus(waited));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_hours_ahead_for_seconds_makes_no_bill_forgotten() {
    for ahead_at in 0..8 {
        let desk = Desk::open().await;
        let (generation, billed) = desk.bill().await;
        for n in 0..8 {
            sleep(EVERY).await;
            // Housekeeping is due, and this bill triggers it.
            desk.is_off_by(if n == ahead_at { 5 } else { 0 });
            desk.bill().await;
            sleep(Duration::from_secs(2)).await;
            desk.is_off_by(0);
        }
        assert_eq!(desk.capture(generation).await, billed, "ahead in round {ahead_at}");
        assert_eq!(desk.used().await, NanoUsd::from_nanos(9 * COST.nanos()));
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_dropped_is_not_billed_again_whatever_the_clock_says() {
    for hours in [-24, -5, 0, 24] {
        let desk = Desk::open().await;
        let (generation, _) = desk.bill().await;
        for _ in 0..36 {
            sleep(EVERY).await;
            desk.bill().await;
        }
        let used = desk.used().await;
        desk.is_off_by(hours);
        let late = desk.capture(generation).await;
        assert_eq!((late.ending, late.charged, late.cost), (Ending::Late, NanoUsd::ZERO, COST), "{hours}");
        assert_eq!(desk.capture(generation).await, late);
        assert_eq!(desk.used().await, used);
        // This generation's bills were not dropped, so it was never billed, although its hold is missing. The account
        // had no holds before it was created.
        let lost = desk.capture(GenerationId::generate(&*desk.clock)).await;
        assert_eq!(lost.ending == Ending::Late, hours == -5, "{hours}");
    }
}
