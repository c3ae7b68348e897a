//! Oddities in answers: counted by upstream, and each logged at most once an hour.

use answer::{Oddities, Oddity};
use metering::UsageCounter;
use upstreams::Running;

use super::job::Job;

impl Job {
    /// Counts and logs an answer's oddities.
    pub(super) fn note_oddities(&self, mut odd: Oddities, counter: &UsageCounter, running: &Running) {
        let is_empty = counter.shows_nothing();
        odd.add_if(Oddity::Empty, is_empty);
        if is_empty {
            metrics::counter!("gateway_empty_answers_total").increment(1);
        }
        for oddity in odd.iter() {
            let kind = oddity.as_str();
            if !running.note_oddity(kind) {
                continue;
            }
            let upstream = running.upstream();
            if oddity == Oddity::Empty {
                let completion = counter.completion();
                tracing::warn!(generation = %self.id, %upstream, completion, "an upstream reported output tokens but sent no content; its client got an empty answer, and is billed as reported");
            } else {
                tracing::warn!(generation = %self.id, %upstream, kind, "an upstream's answer does not follow its API; what could be read was delivered");
            }
        }
    }
}
