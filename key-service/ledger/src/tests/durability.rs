//! Checks that answers wait until their changes are durable, and do not delay other commits.

use async_trait::async_trait;
use domain::ledger::{Command, Key, Progress};
use futures_util::FutureExt;
use records::{Commit, Committed, Durability, Place, Space, Term};
use tokio::sync::watch;

use super::*;

/// In-memory maps with a disk of adjustable speed.
struct SlowDisk {
    maps: Maps,
    disk: watch::Sender<Disk>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disk {
    Writes,
    Hangs,
    Fails,
}

#[async_trait]
impl Records for SlowDisk {
    fn system(&self) -> &'static str {
        "maps"
    }

    async fn read(&self, space: &Space, questions: Vec<Question>) -> Result<Vec<Answer>, Failure> {
        self.maps.read(space, questions).await
    }

    async fn commit(&self, space: &Space, commit: Commit) -> Result<Committed, Failure> {
        self.maps.commit(space, commit).await
    }

    async fn places(&self) -> Result<Vec<(Space, Place)>, Failure> {
        self.maps.places().await
    }

    async fn settle(&self, _space: &Space, durability: Durability, _since: Term) -> Result<(), Failure> {
        if durability < Durability::Durable {
            return Ok(());
        }
        let mut disk = self.disk.subscribe();
        let disk = *disk.wait_for(|disk| *disk != Disk::Hangs).await.unwrap();
        if disk == Disk::Fails { Err(Failure::Unknown("the disk is on fire".into())) } else { Ok(()) }
    }
}

async fn ledger() -> (Arc<SlowDisk>, Lanes) {
    let records = Arc::new(SlowDisk { maps: Maps::default(), disk: watch::Sender::new(Disk::Writes) });
    let ledger = Lanes::new(Arc::clone(&records) as Arc<dyn Records>, Arc::new(System), KEPT);
    make(&ledger, 0).await.unwrap();
    (records, ledger)
}

/// Creates a key, and the account if it does not exist.
async fn make(ledger: &Lanes, number: u8) -> Result<(), crate::error::StoreError> {
    let money = domain::ledger::Account { credit: NanoUsd::from_usd(1), ..Default::default() };
    let decide = |change: &mut Change<'_>| {
        if change.account()?.is_none() {
            change.set_account(money);
        }
        if change.key(key(number))?.is_none() {
            change.set_key(key(number), Key::default());
        }
        Ok(())
    };
    ledger.change(account(0), decide).await
}

pub(super) fn hold(generation: GenerationId) -> Command {
    Command::Hold(new_hold(key(0), generation, NanoUsd::from_nanos(10)))
}

pub(super) fn capture(generation: GenerationId) -> Command {
    let total = Progress { cost: NanoUsd::from_nanos(10), ..Progress::default() };
    let model = "Model Flash".into();
    Command::Capture { key: key(0), generation, model, total, chargeable: None, estimated: false }
}

#[tokio::test]
async fn a_bill_is_answered_when_it_is_durable_and_other_commands_meanwhile() {
    let (records, ledger) = ledger().await;
    let [first, second] = [1, 2].map(|n| GenerationId::new(START, [n; 10]));
    let execute = |command| ledger.execute(account(0), vec![command], START);
    execute(hold(first)).await.unwrap();
    records.disk.send_replace(Disk::Hangs);
    let mut billed = Box::pin(execute(capture(first)));
    assert_eq!((&mut billed).now_or_never(), None);
    let mut made = Box::pin(make(&ledger, 1));
    assert!((&mut made).now_or_never().is_none());
    for command in [hold(second), Command::Tick { seen: None }] {
        let answered = execute(command.clone()).now_or_never();
        assert!(matches!(answered, Some(Ok(outcomes)) if outcomes[0].is_ok()), "{command:?}");
    }
    records.disk.send_replace(Disk::Writes);
    assert!(billed.await.unwrap()[0].is_ok());
    made.await.unwrap();
}

/// The bill was written, but may be lost: a caller that sends the command again waits again.
#[tokio::test]
async fn a_bill_that_may_be_lost_is_unknown_until_it_is_durable() {
    let (records, ledger) = ledger().await;
    let generation = GenerationId::new(START, [1; 10]);
    let execute = |command| ledger.execute(account(0), vec![command], START);
    execute(hold(generation)).await.unwrap();
    records.disk.send_replace(Disk::Fails);
    for _ in 0..2 {
        let failed = execute(capture(generation)).await;
        assert!(matches!(failed, Err(Failure::Unknown(_))), "{failed:?}");
        make(&ledger, 1).await.unwrap_err();
    }
    records.disk.send_replace(Disk::Writes);
    assert!(execute(capture(generation)).await.unwrap()[0].is_ok());
    make(&ledger, 1).await.unwrap();
}

/// A refusal may be due to an earlier attempt, such as "not found" after a removal that is not durable yet.
#[tokio::test]
async fn a_refusal_is_answered_when_what_it_saw_is_durable() {
    let (records, ledger) = ledger().await;
    let refuse = || ledger.change(account(0), |_| Err::<(), _>(StoreError::Conflict("no".into())));
    records.disk.send_replace(Disk::Fails);
    let failed = refuse().await;
    assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{failed:?}");
    records.disk.send_replace(Disk::Writes);
    let refused = refuse().await;
    assert!(matches!(refused, Err(StoreError::Conflict(_))), "{refused:?}");
}
