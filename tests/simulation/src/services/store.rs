//! The store: maps that all key-services share. Each key-service has its own connection, which takes time, stalls and
//! loses answers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use key_service_records::{
    Answer, Commit, Committed, Failure, Place, Question, Records, Space, Write, maps::Maps,
};
use parking_lot::Mutex;
use shared::time::Timestamp;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    chance::dice::Dice,
    services::{call_times::CallTimes, process::Process},
};

/// Timeout of a call, the same as with Redis.
const CALL_DEADLINE: Duration = Duration::from_millis(1_500);

/// Function called after every commit that has written, with the earliest time at which one of its calls is judged.
pub(crate) type AfterCommit = Box<dyn Fn(Option<Timestamp>) + Send + Sync>;

/// The maps that all key-services share.
#[derive(Default)]
pub(crate) struct SharedMaps {
    pub(crate) maps: Maps,
    stalled_until: Mutex<Option<Instant>>,
    loses_answers: AtomicBool,
    /// How long the store stays down after being killed in its next commit.
    killed_for: Mutex<Option<Duration>>,
    /// The part of a commit that was in the store's file when the store was killed.
    torn: Mutex<Option<(Space, Vec<Write>)>>,
    after_commit: Mutex<Option<AfterCommit>>,
}

impl SharedMaps {
    pub(crate) fn after_each_commit(&self, ask: AfterCommit) {
        *self.after_commit.lock() = Some(ask);
    }

    /// Delays the effects of calls for some time.
    pub(crate) fn stall(&self, time: Duration) {
        *self.stalled_until.lock() = Some(Instant::now() + time);
    }

    /// Starts or stops losing some answers, although the calls take effect.
    pub(crate) fn lose_answers(&self, loses: bool) {
        self.loses_answers.store(loses, Ordering::Relaxed);
    }

    /// Kills the store in the middle of the next commit, and restarts it after some time.
    pub(crate) fn kill_in_next_commit(&self, away: Duration) {
        *self.killed_for.lock() = Some(away);
    }

    /// Restarts the store after it was killed in this commit. Like Redis, it reads its file up to the torn part and
    /// appends after it, so that the torn part takes effect at the next start.
    async fn start_after(&self, space: Space, writes: Vec<Write>) {
        let half = writes.len() / 2;
        let before = self.torn.lock().replace((space, writes.into_iter().take(half).collect()));
        if let Some((space, writes)) = before {
            let _ = self.maps.commit(&space, Commit { guards: Vec::new(), writes }).await;
        }
        // The key-services have the file rewritten before they write anything else.
        *self.torn.lock() = None;
    }

    fn stalled_until(&self) -> Instant {
        self.stalled_until.lock().unwrap_or_else(Instant::now)
    }
}

/// A key-service's connection to the maps.
pub(crate) struct WayToMaps {
    pub(crate) shared: Arc<SharedMaps>,
    pub(crate) process: Arc<Process>,
    pub(crate) call_times: Arc<CallTimes>,
    pub(crate) dice: Mutex<Dice>,
}

impl WayToMaps {
    /// Makes a call. Once sent, it may take effect even if the process has ended.
    async fn call<T, F>(&self, call: impl FnOnce(Arc<SharedMaps>) -> F + Send) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let (there, back, arrives_late, is_lost) = {
            let mut dice = self.dice.lock();
            let loses = self.shared.loses_answers.load(Ordering::Relaxed);
            (dice.millis(0..=1), dice.millis(0..=1), dice.one_in(2), loses && dice.one_in(3))
        };
        let (answer, answered) = oneshot::channel();
        let (shared, process, effect) =
            (self.shared.clone(), self.process.clone(), call(self.shared.clone()));
        tokio::spawn(async move {
            let sent = Instant::now();
            sleep(there).await;
            sleep_until(shared.stalled_until()).await;
            // Like a Redis client, the backend drops a call that it could not begin in time.
            if sent.elapsed() >= CALL_DEADLINE || (process.is_dead() && !arrives_late) {
                return;
            }
            let done = effect.await;
            sleep(back).await;
            let lost = || Failure::Unknown("the answer was lost".into());
            let _ = answer.send(if is_lost { done.and_then(|_| Err(lost())) } else { done });
        });
        match timeout(CALL_DEADLINE, answered).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(_)) | Err(_) => Err(Failure::Unknown("no answer in time".into())),
        }
    }
}

#[async_trait]
impl Records for WayToMaps {
    fn system(&self) -> &'static str {
        "maps"
    }

    async fn read(&self, space: &Space, questions: Vec<Question>) -> Result<Vec<Answer>, Failure> {
        let space = space.clone();
        self.call(|shared| async move { shared.maps.read(&space, questions).await }).await
    }

    async fn commit(&self, space: &Space, commit: Commit) -> Result<Committed, Failure> {
        let (space, judged_at) = (space.clone(), self.call_times.earliest());
        self.call(move |shared| async move {
            let is_changed = !commit.writes.is_empty();
            let killed_for = shared.killed_for.lock().take_if(|_| is_changed);
            if let Some(away) = killed_for {
                shared.stall(away);
                shared.start_after(space, commit.writes).await;
                return Err(Failure::Unknown("the store was killed".into()));
            }
            let committed = shared.maps.commit(&space, commit).await;
            if !is_changed {
                return committed;
            }
            if let (Ok(Committed::Written), Some(ask)) = (&committed, &*shared.after_commit.lock()) {
                ask(judged_at);
            }
            committed
        })
        .await
    }

    async fn places(&self) -> Result<Vec<(Space, Place)>, Failure> {
        self.call(|shared| async move { shared.maps.places().await }).await
    }
}

/// The maps without a connection: every call is answered immediately.
pub(crate) struct Direct(pub(crate) Arc<SharedMaps>);

#[async_trait]
impl Records for Direct {
    fn system(&self) -> &'static str {
        "maps"
    }

    async fn read(&self, space: &Space, questions: Vec<Question>) -> Result<Vec<Answer>, Failure> {
        self.0.maps.read(space, questions).await
    }

    async fn commit(&self, space: &Space, commit: Commit) -> Result<Committed, Failure> {
        self.0.maps.commit(space, commit).await
    }

    async fn places(&self) -> Result<Vec<(Space, Place)>, Failure> {
        self.0.maps.places().await
    }
}
