//! The calls that a session has sent and that are not answered yet, by the frames in which they were sent.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use shared_rpc::{CALL_DEADLINE, MAX_FRAME_CALLS};
use tokio::time::Instant;

use crate::keys::queue::Pending;

/// Maximum number of frames in flight. The number of frames that wait for an unreachable part of the store stays below
/// this: at most one starts every [`SLOW`], and none lives longer than [`CALL_DEADLINE`].
pub(super) const MOST_FRAMES: usize = 512;
/// Maximum number of calls in flight. A key-service reads twice this number at once.
const MOST_CALLS: usize = 32 * MAX_FRAME_CALLS;
/// If a frame is not answered after this time, the next frame may start. Frames are normally answered earlier.
const SLOW: Duration = Duration::from_millis(10);
/// If no more than this many frames were sent since the last answer, another frame may be sent. Each waits twice as
/// long as the frame before it.
const MOST_UNHEARD: u32 = 4;
/// For this long after an answer that came from the store, the store counts as reachable, at least in part, even if
/// calls fail.
const REACHED_FOR: Duration = Duration::from_secs(1);
/// Time without an answer after which calls are also sent to another key-service. If all key-services are slow because
/// the store is slow, the second key-service still has most of the time until the caller's deadline.
const HEDGE_AFTER: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(super) struct SentFrames {
    /// Frames with unanswered calls, the oldest first.
    frames: VecDeque<Frame>,
    /// Id of the next call.
    next_id: u64,
    /// Number of calls in flight.
    left: usize,
    /// Time of the last answer.
    heard_at: Option<Instant>,
    /// Time of the last answer that came from the store.
    reached_at: Option<Instant>,
    /// Frames sent since the last answer.
    unheard: u32,
    /// Whether the session's calls were handed on to other sessions because it got no answer.
    is_silent: bool,
}

struct Frame {
    /// Id of the first call; the others follow consecutively.
    first_id: u64,
    /// Calls by position; `None` once answered.
    calls: Vec<Option<Arc<Pending>>>,
    left: usize,
    sent_at: Instant,
    /// Whether the frame was found to be slow.
    is_hedged: bool,
    /// Whether other sessions send the calls too, because this session was silent. If so, a failure that this session
    /// receives does not count as an answer.
    is_handed_on: bool,
    /// What the answers so far show about the store. The store counts as away if a call failed and no call reached the
    /// store.
    store: StoreSeen,
}

/// What an answer shows about a key-service's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreSeen {
    Reached,
    /// Calls for other accounts may still reach their part of the store.
    Away,
    /// The store was not needed.
    Unclear,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameEnd {
    Answered,
    /// Calls failed because the store cannot be reached, and no call has reached it recently.
    StoreFailed,
}

/// Calls that another session should send too.
pub(super) enum Hedge {
    None,
    /// Other calls are being answered.
    Slow(Vec<Arc<Pending>>),
    /// No calls are being answered.
    Silent(Vec<Arc<Pending>>),
    /// No call was answered for so long that the session must be closed.
    TooLate,
}

impl SentFrames {
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Adds a frame. Returns the id of its first call.
    pub(super) fn sent(&mut self, calls: Vec<Arc<Pending>>, now: Instant) -> u64 {
        let (first_id, left) = (self.next_id, calls.len());
        self.next_id += left as u64;
        self.left += left;
        self.unheard += 1;
        let calls = calls.into_iter().map(Some).collect();
        self.frames.push_back(Frame {
            first_id,
            calls,
            left,
            sent_at: now,
            is_hedged: false,
            is_handed_on: false,
            store: StoreSeen::Unclear,
        });
        first_id
    }

    /// Returns the time from which the next frame may be sent; `None` if an answer must come first.
    pub(super) fn free_at(&self, now: Instant) -> Option<Instant> {
        let is_last = |frame: &&Frame| frame.first_id + frame.calls.len() as u64 == self.next_id;
        // Older frames are known to be slow, and the next frame does not wait for them.
        let Some(last) = self.frames.back() else { return Some(now) };
        let is_full = self.frames.len() >= MOST_FRAMES || self.left >= MOST_CALLS;
        let waits = self.is_silent || is_full || self.unheard > MOST_UNHEARD;
        let slow_at = |last: &Frame| last.sent_at + SLOW * 2_u32.pow(self.unheard.saturating_sub(1));
        (!waits).then(|| Some(last).filter(is_last).map_or(now, slow_at))
    }

    /// Takes the call with this id, unless it was already answered. Calls `deliver` with the call and whether it was
    /// handed on; `deliver` returns what the answer shows about the store. If that was the frame's last call, returns
    /// how the frame ended.
    pub(super) fn answered(
        &mut self,
        id: u64,
        now: Instant,
        deliver: impl FnOnce(&Pending, bool) -> StoreSeen,
    ) -> Option<FrameEnd> {
        (self.heard_at, self.unheard, self.is_silent) = (Some(now), 0, false);
        let at = self.frames.iter().rposition(|frame| frame.first_id <= id)?;
        let frame = &mut self.frames[at];
        let pending = frame.calls.get_mut(usize::try_from(id - frame.first_id).ok()?)?.take()?;
        match deliver(&pending, frame.is_handed_on) {
            StoreSeen::Reached => (frame.store, self.reached_at) = (StoreSeen::Reached, Some(now)),
            StoreSeen::Away if frame.store == StoreSeen::Unclear => frame.store = StoreSeen::Away,
            StoreSeen::Away | StoreSeen::Unclear => {}
        }
        (frame.left, self.left) = (frame.left - 1, self.left - 1);
        if frame.left > 0 {
            return None;
        }
        let is_there = self.reached_at.is_some_and(|reached_at| reached_at + REACHED_FOR > now);
        let end = if frame.store == StoreSeen::Away && !is_there {
            FrameEnd::StoreFailed
        } else {
            FrameEnd::Answered
        };
        self.frames.remove(at);
        Some(end)
    }

    /// Returns the time at which [`Self::hedge`] must be called next.
    pub(super) fn hedged_at(&self) -> Option<Instant> {
        let due = |frame: &Frame| frame.sent_at + if frame.is_hedged { CALL_DEADLINE } else { HEDGE_AFTER };
        self.frames.iter().map(due).min()
    }

    /// Returns the calls that other sessions should send too, if a frame is overdue. Drops frames whose callers have
    /// given up.
    pub(super) fn hedge(&mut self, now: Instant) -> Hedge {
        let heard_at = self.heard_at;
        let is_heard_since = |frame: &Frame| heard_at.is_some_and(|heard_at| heard_at > frame.sent_at);
        while let Some(old) = self.frames.pop_front_if(|frame| frame.sent_at + CALL_DEADLINE <= now) {
            if !is_heard_since(&old) {
                self.frames.push_front(old);
                return Hedge::TooLate;
            }
            self.left -= old.left;
        }
        let is_due = |frame: &&mut Frame| !frame.is_hedged && frame.sent_at + HEDGE_AFTER <= now;
        let Some(frame) = self.frames.iter_mut().find(is_due) else { return Hedge::None };
        frame.is_hedged = true;
        if is_heard_since(frame) {
            return Hedge::Slow(frame.wanted());
        }
        frame.is_handed_on = true;
        self.is_silent = true;
        Hedge::Silent(frame.wanted())
    }

    /// Returns the calls that other sessions must send, except those already handed on.
    pub(super) fn to_hand_on(&self) -> Vec<Arc<Pending>> {
        self.frames.iter().filter(|frame| !frame.is_handed_on).flat_map(Frame::wanted).collect()
    }
}

impl Frame {
    /// Returns the unanswered calls whose callers still wait.
    fn wanted(&self) -> Vec<Arc<Pending>> {
        self.calls.iter().flatten().filter(|call| call.is_wanted()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use shared::key::Class;
    use shared_observe::traces::Span;
    use shared_rpc::Call;
    use tokio::sync::oneshot;

    use super::*;
    use crate::keys::queue::Answered;

    type Receiver = oneshot::Receiver<Answered>;

    fn calls(count: usize) -> (Vec<Arc<Pending>>, Vec<Receiver>) {
        let call = || Call::Authenticate { credential: String::new(), required: Class::Api };
        (0..count).map(|_| Pending::new(Arc::new(call()), Span::default(), None)).unzip()
    }

    #[test]
    fn a_frame_lets_the_next_one_go_once_it_is_answered_or_slow() {
        let (mut in_flight, began) = (SentFrames::default(), Instant::now());
        assert_eq!(in_flight.free_at(began), Some(began));
        let ((frame, _callers), (other, _others)) = (calls(2), calls(1));
        assert_eq!(in_flight.sent(frame, began), 0);
        assert_eq!(in_flight.free_at(began), Some(began + SLOW));
        assert_eq!(in_flight.answered(0, began, |_, _| StoreSeen::Away), None);
        assert_eq!(in_flight.free_at(began), Some(began + SLOW), "one call is slow");
        assert_eq!(in_flight.sent(other, began + SLOW), 2);
        assert_eq!(in_flight.answered(2, began, |_, _| StoreSeen::Unclear), Some(FrameEnd::Answered));
        assert_eq!(
            in_flight.free_at(began),
            Some(began),
            "the last one is answered, and the one before is slow"
        );
        assert_eq!(in_flight.answered(1, began, |_, _| StoreSeen::Reached), Some(FrameEnd::Answered));
        assert_eq!(in_flight.answered(1, began, |_, _| StoreSeen::Reached), None, "once");
        assert!(in_flight.is_empty());
    }

    #[test]
    fn a_store_of_which_lately_a_part_was_reached_has_not_failed() {
        let (mut in_flight, began) = (SentFrames::default(), Instant::now());
        let mut end = |seen, now| {
            let (frame, _callers) = calls(1);
            let id = in_flight.sent(frame, now);
            in_flight.answered(id, now, |_, _| seen)
        };
        assert_eq!(end(StoreSeen::Away, began), Some(FrameEnd::StoreFailed));
        assert_eq!(end(StoreSeen::Reached, began), Some(FrameEnd::Answered));
        assert_eq!(end(StoreSeen::Away, began + REACHED_FOR / 2), Some(FrameEnd::Answered));
        assert_eq!(end(StoreSeen::Unclear, began + REACHED_FOR), Some(FrameEnd::Answered));
        assert_eq!(end(StoreSeen::Away, began + REACHED_FOR), Some(FrameEnd::StoreFailed));
    }

    #[test]
    fn a_session_without_answers_gets_few_frames_and_none_once_its_calls_were_handed_on() {
        let (mut in_flight, began) = (SentFrames::default(), Instant::now());
        let (mut now, mut callers, mut frames) = (began, Vec::new(), 0);
        while let Some(free_at) = in_flight.free_at(now) {
            let (frame, waiting) = calls(1);
            (now, frames) = (free_at, frames + 1);
            in_flight.sent(frame, now);
            callers.extend(waiting);
        }
        assert_eq!(frames, MOST_UNHEARD + 1);
        assert!(now < began + HEDGE_AFTER, "it gets no more before its silence is known");
        assert!(matches!(in_flight.hedge(began + HEDGE_AFTER), Hedge::Silent(calls) if calls.len() == 1));
        assert_eq!(in_flight.to_hand_on().len(), callers.len() - 1, "none twice");
        in_flight.answered(3, began + HEDGE_AFTER, |_, _| StoreSeen::Reached);
        assert!(in_flight.free_at(now).is_some());
        assert!(matches!(in_flight.hedge(now + HEDGE_AFTER), Hedge::Slow(calls) if calls.len() == 1));
        let mut is_handed_on = |id| {
            let mut is_handed_on = None;
            in_flight.answered(id, now, |_, handed_on| {
                is_handed_on = Some(handed_on);
                StoreSeen::Away
            });
            is_handed_on
        };
        assert_eq!(is_handed_on(0), Some(true));
        assert_eq!(is_handed_on(1), Some(false), "others send it as well, and a failure still counts");
    }

    #[test]
    fn a_session_is_given_up_for_its_silence_and_not_for_a_call_that_is_never_answered() {
        let (mut in_flight, began) = (SentFrames::default(), Instant::now());
        let ((stuck, _stuck), (other, _other), (silent, _silent)) = (calls(1), calls(1), calls(1));
        in_flight.sent(stuck, began);
        in_flight.sent(other, began + SLOW);
        in_flight.answered(1, began + 2 * SLOW, |_, _| StoreSeen::Reached);
        assert!(matches!(in_flight.hedge(began + CALL_DEADLINE), Hedge::None));
        assert!(in_flight.is_empty(), "nobody waits for the call any more");
        in_flight.sent(silent, began + CALL_DEADLINE);
        assert!(matches!(in_flight.hedge(began + 2 * CALL_DEADLINE), Hedge::TooLate));
        assert!(!in_flight.is_empty());
    }
}
