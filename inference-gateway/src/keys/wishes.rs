//! Whose holds are wanted; and a hold that may have been opened for nobody is taken back.
//!
//! An authorization may be carried out although its outcome is never heard, and copies of it may be carried out late:
//! when its request was refused elsewhere, or is over. Such a hold would keep money away until its lease runs out.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use shared::{
    ids::GenerationId,
    rpc::v1::{self, call},
};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use super::{Handle, Keys, Unavailable, queue::Pending};

/// Holds that wait to be taken back, at most; those beyond it expire.
const QUEUE: usize = 1024;
/// Holds that are taken back at once.
const AT_ONCE: usize = 64;
/// How long it is tried to take a hold back: an ordinary lease, which then does the same.
const PERSISTENCE: Duration = Duration::from_secs(30);
/// The first pause before it is tried again; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// A second keeps the load low while key-services are away.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The generations that are asked for or have a hold, and those whose holds are being taken back.
pub(super) struct Wishes {
    known: Mutex<HashMap<GenerationId, Stand>>,
    unwanted: mpsc::Sender<Unwanted>,
}

/// A generation that may have a hold which nobody wants.
pub(super) struct Unwanted {
    generation: GenerationId,
    request: v1::AuthorizeRequest,
}

enum Stand {
    Wanted,
    TakenBack {
        /// Something was heard meanwhile, so that it has to be done once more.
        again: bool,
    },
}

/// That a caller wants the hold of a generation. Dropped while the outcome is open, what may be held is taken back.
pub(super) struct Wish<'a> {
    wishes: &'a Wishes,
    generation: GenerationId,
    /// The first call that asked for it, while the outcome is open.
    pub(super) asked: Option<Arc<Pending>>,
    granted: bool,
}

impl Wishes {
    /// No wishes yet; what is to be taken back comes out of the receiver.
    pub(super) fn new() -> (Self, mpsc::Receiver<Unwanted>) {
        let (unwanted, taken_back) = mpsc::channel(QUEUE);
        (Self { known: Mutex::default(), unwanted }, taken_back)
    }

    /// The wish for a hold; `None` while one of this generation is being taken back.
    pub(super) fn wish(&self, generation: GenerationId) -> Option<Wish<'_>> {
        match self.known().entry(generation) {
            Entry::Occupied(known) if matches!(known.get(), Stand::TakenBack { .. }) => return None,
            Entry::Occupied(_) => {}
            Entry::Vacant(unknown) => {
                unknown.insert(Stand::Wanted);
            }
        }
        Some(Wish { wishes: self, generation, asked: None, granted: false })
    }

    /// Whatever may be held for the generation is of no use any more.
    pub(super) fn forget(&self, generation: GenerationId) {
        if let Entry::Occupied(known) = self.known().entry(generation)
            && matches!(known.get(), Stand::Wanted)
        {
            known.remove();
        }
    }

    /// If this is an authorization, a hold may have come of it: it is taken back, unless it is wanted.
    pub(super) fn doubt(&self, pending: &Pending) {
        let call::Request::Authorize(request) = &pending.request else { return };
        let Ok(generation) = request.generation_id.parse() else { return };
        match self.known().entry(generation) {
            Entry::Occupied(mut known) => {
                if let Stand::TakenBack { again } = known.get_mut() {
                    *again = true;
                }
                return;
            }
            Entry::Vacant(unknown) => unknown.insert(Stand::TakenBack { again: false }),
        };
        metrics::counter!("gateway_doubtful_holds_total").increment(1);
        if self.unwanted.try_send(Unwanted { generation, request: request.clone() }).is_err() {
            tracing::warn!(%generation, "too many holds are in doubt; if there is one, it will expire");
            self.known().remove(&generation);
        }
    }

    /// The hold was taken back; false where that has to be done once more.
    fn taken_back(&self, generation: GenerationId) -> bool {
        let mut known = self.known();
        if let Some(Stand::TakenBack { again }) = known.get_mut(&generation)
            && std::mem::take(again)
        {
            return false;
        }
        known.remove(&generation);
        true
    }

    fn known(&self) -> MutexGuard<'_, HashMap<GenerationId, Stand>> {
        // Every change is a single step, so that a panic elsewhere leaves it whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wish<'_> {
    /// The hold is open, and wanted until it is resolved.
    pub(super) fn granted(mut self) {
        self.granted = true;
    }

    /// There is no hold.
    pub(super) fn refused(mut self) {
        self.asked = None;
    }
}

impl Drop for Wish<'_> {
    fn drop(&mut self) {
        if self.granted {
            return;
        }
        self.wishes.forget(self.generation);
        if let Some(pending) = self.asked.take().filter(|pending| pending.was_sent()) {
            self.wishes.doubt(&pending);
        }
    }
}

/// Takes back what nobody wants, for as long as there is a handle.
pub(super) async fn take_back_all(keys: Weak<Handle>, mut unwanted: mpsc::Receiver<Unwanted>) {
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            one = unwanted.recv(), if under_way.len() < AT_ONCE => {
                let (Some(one), Some(handle)) = (one, keys.upgrade()) else { return };
                under_way.push(take_back(Keys(handle), one));
            }
            Some(()) = under_way.next() => {}
        }
    }
}

async fn take_back(keys: Keys, Unwanted { generation, request }: Unwanted) {
    loop {
        if timeout(PERSISTENCE, until_released(&keys, &request)).await.is_err() {
            tracing::warn!(%generation, "a hold in doubt was not taken back; if there is one, it will expire");
        }
        if keys.0.wishes.taken_back(generation) {
            return;
        }
    }
}

/// Asks for the hold once more, which tells of one that is open, and releases it.
async fn until_released(keys: &Keys, request: &v1::AuthorizeRequest) {
    // If there is none, as little as can be is held until it is released.
    let least = v1::AuthorizeRequest {
        prompt_tokens: 0,
        output_tokens: 1,
        enough_output_tokens: 1,
        least_output_tokens: 1,
        ..request.clone()
    };
    let mut pause = FIRST_PAUSE;
    loop {
        let released = match keys.ask_for_hold(least.clone()).await {
            Ok(Ok(hold)) => keys.release(&hold).await,
            Ok(Err(_refusal)) => return,
            Err(e) => Err(e),
        };
        match released {
            Ok(()) | Err(Unavailable::Ended) => return,
            Err(e) if e.may_pass() => {}
            Err(e) => {
                tracing::debug!(error = %e, generation = request.generation_id, "no hold to take back");
                return;
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
