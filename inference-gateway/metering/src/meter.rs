//! The meter of a stream.

use answer::{
    AnswerReader, Chunk, Decoder, Event, Nonsense, Oddities, Oddity, Payload, Settled, StreamWriter,
};
use bytes::Bytes;
use reply::MAX_CHOICES;
use shared::{error::ApiError, generation::FinishReason, tokens::Usage};

use crate::{granted::GrantedTokens, output::Output, stream_end::StreamEnd, usage::UsageCounter};

#[expect(clippy::struct_excessive_bools, reason = "each is a separate fact about a stream")]
pub struct StreamMeter {
    pub(super) decoder: Decoder,
    pub(super) reader: AnswerReader,
    pub(super) writer: StreamWriter,
    pub(super) counter: UsageCounter,
    pub(super) granted: GrantedTokens,
    pub(super) choices: u64,
    /// An event that was counted, but that the granted tokens do not cover.
    pub(super) blocked: Option<Blocked>,
    /// Tokens counted before the first undelivered event.
    pub(super) delivered: Option<u64>,
    /// Tokens that the upstream may have generated silently since the last sign of output. They count towards the
    /// grant, never towards the bill.
    pub(super) silent: u64,
    pub(super) begun: bool,
    /// The first finish reason received that is not among those of known servers.
    pub(super) unknown_finish: Option<String>,
    /// Finish reasons of choices, in order of arrival.
    pub(super) finish_reasons: Vec<FinishReason>,
    /// Whether output came after the last finish reason.
    pub(super) goes_on: bool,
    /// Whether a chunk without choices came after the last finish reason, as it does at the end of a stream.
    pub(super) last_chunk: bool,
    /// Number of events with data.
    pub(super) events: u64,
    /// Number of events that were too long to keep.
    pub(super) too_long: u64,
    /// Whether part of the stream could not be read. The upstream may have generated that part and charged for it.
    pub(super) is_unreadable: bool,
    pub(super) odd: Oddities,
    /// Whether the upstream ended an answer without any content.
    pub(super) is_empty: bool,
    /// Whether the last output was followed by a report of usage.
    pub(super) is_reported_last: bool,
    /// Why the upstream's body ended, if one of its events still waits.
    pub(super) ended: Option<String>,
    pub(super) out: Output,
}

/// An event that waits for tokens to be granted.
pub(super) struct Blocked {
    data: Payload,
    /// Tokens counted before the event.
    before: u64,
}

enum EventStep {
    Delivered,
    Blocked,
    Ended(StreamEnd),
}

impl StreamMeter {
    /// Meters a stream of `choices`, from its beginning.
    pub fn new(
        reader: AnswerReader,
        writer: StreamWriter,
        counter: UsageCounter,
        granted: GrantedTokens,
        choices: u64,
    ) -> Self {
        Self {
            decoder: Decoder::default(),
            reader,
            writer,
            counter,
            granted,
            choices,
            blocked: None,
            delivered: None,
            silent: 0,
            begun: false,
            unknown_finish: None,
            finish_reasons: Vec::new(),
            goes_on: false,
            last_chunk: false,
            events: 0,
            too_long: 0,
            is_unreadable: false,
            odd: Oddities::default(),
            is_empty: false,
            is_reported_last: false,
            ended: None,
            out: Output::default(),
        }
    }

    /// Reads the upstream's next bytes. Must not be called while the stream is blocked.
    pub fn push(&mut self, piece: Bytes) -> Option<StreamEnd> {
        self.decoder.push(piece);
        self.rewrite()
    }

    /// Counts the tokens of events that were received but not delivered, even beyond the grant, because the stream
    /// ends.
    pub fn count_received(&mut self) {
        if let Some(Blocked { before, .. }) = self.blocked.take() {
            self.delivered.get_or_insert(before);
        }
        while let Some(data) = self.decoder.next_data() {
            self.count_event(&data);
        }
    }

    /// Counts the tokens of further bytes without delivering them, after [`Self::count_received`].
    pub fn count_only(&mut self, piece: Bytes) {
        self.decoder.push(piece);
        self.count_received();
    }

    fn count_event(&mut self, data: &Payload) {
        match self.reader.payload(data) {
            Ok(Event::Chunk(chunk)) => {
                let before = self.count(&chunk);
                self.delivered.get_or_insert(before);
            }
            Ok(Event::Failed(_, chunk)) => self.counter.count_report_of(&chunk),
            Ok(Event::Done) => {}
            Err(_) if self.decoder.repair(data) => {}
            Err(_) => self.count_unreadable(data),
        }
    }

    /// Counts the usage in an event that cannot be read.
    fn count_unreadable(&mut self, data: &Payload) {
        self.counter.count_report(self.reader.unreadable(data));
    }

    /// Marks a stream whose rest cannot be read. Its known usage is billed, since the upstream may charge for it.
    pub const fn give_up(&mut self) {
        self.is_unreadable = true;
    }

    /// Ends the stream at the end of the upstream's body, or at the error that broke it. `None` if the last event waits
    /// for a grant.
    pub fn upstream_ended(&mut self, error: Option<String>) -> Option<StreamEnd> {
        let is_broken = error.is_some();
        let reason = error.unwrap_or_else(|| "it ended without a finish reason".to_owned());
        if self.ended.is_none() {
            // The blank line after the last event may be missing.
            self.decoder.end();
        }
        if is_broken {
            self.count_received();
        } else if let Some(end) = self.rewrite() {
            return Some(end);
        }
        if self.is_blocked() {
            self.ended = Some(reason);
            return None;
        }
        let is_told = !is_broken && (self.decoder.is_of_body() || self.is_reported_last);
        Some(self.close(is_told, &reason))
    }

    /// Records an extension: the total granted and the total requested. Delivers the blocked event if it is now
    /// covered. Ends the stream if the extension granted less than requested and does not cover the event.
    pub fn extended(&mut self, granted: u64, asked: u64) -> Option<StreamEnd> {
        self.granted.extended(granted, asked);
        let Some(Blocked { data, before }) = self.blocked.take() else {
            return (self.granted.is_short() && self.is_uncovered()).then_some(StreamEnd::GrantUsedUp);
        };
        match self.event(data, Some(before), self.granted.is_short()) {
            EventStep::Delivered if self.ended.is_some() => self.upstream_ended(None),
            EventStep::Delivered => self.rewrite(),
            EventStep::Blocked => None,
            EventStep::Ended(end) => Some(end),
        }
    }

    /// Returns the total of output tokens to request, if an extension is due.
    pub fn ask(&self) -> Option<u64> {
        let counted = self.counter.completion().saturating_add(self.silent);
        match &self.blocked {
            Some(Blocked { before, .. }) => self.granted.ask(*before, Some(counted)),
            None => self.granted.ask(counted, self.is_uncovered().then_some(counted)),
        }
    }

    /// Sets the tokens that the upstream may have generated silently since the last sign of output.
    pub const fn assume_silent(&mut self, tokens: u64) {
        self.silent = tokens;
    }

    /// Returns whether the tokens that the upstream may have generated silently exceed the grant. An extension must
    /// cover them, or the upstream must be stopped.
    pub fn is_uncovered(&self) -> bool {
        let counted = self.counter.completion().saturating_add(self.silent);
        self.silent > 0 && !self.granted.is_complete() && !self.granted.covers(counted)
    }

    /// Replaces the estimate of the prompt with an exact count.
    pub fn set_prompt(&mut self, exact: u64) {
        self.counter.set_prompt(exact);
    }

    /// Counts the events with data so far. Keep-alive comments do not count.
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// Counts the bytes in memory of incomplete events, events that wait for tokens, output that waits for the client,
    /// and the last event if it may be repeated.
    pub fn held_bytes(&self) -> usize {
        let blocked = self.blocked.as_ref().map_or(0, |blocked| blocked.data.held_bytes());
        self.decoder.held_bytes() + blocked + self.out.0.len() + self.writer.held_bytes()
    }

    /// Returns whether there are bytes for the client.
    pub fn has_output(&self) -> bool {
        !self.out.0.is_empty()
    }

    /// Counts the bytes for the client.
    pub fn output_bytes(&self) -> usize {
        self.out.0.len()
    }

    pub const fn output(&mut self) -> &mut Output {
        &mut self.out
    }

    /// Drops incomplete and waiting events, since the stream ends.
    pub fn forget_incomplete(&mut self) {
        self.decoder = Decoder::default();
        self.blocked = None;
    }

    /// Writes a comment that clients ignore, so that proxies on the way do not time out.
    pub fn keep_alive(&mut self) {
        self.writer.keep_alive(&mut self.out.0);
    }

    /// Writes the finish reason `length` for every unfinished choice.
    pub fn cut(&mut self) {
        self.writer.cut(&mut self.out.0);
    }

    /// Writes the last events of a stream that succeeded.
    pub fn finish(&mut self, settled: Settled) {
        self.writer.done(settled, &mut self.out.0);
    }

    /// Writes an error as the stream's last event, with the bill for the output before it, if there was any.
    pub fn fail(&mut self, error: &ApiError, settled: Settled) {
        let settled = (!self.is_free()).then_some(settled);
        self.writer.fail(error, settled, &mut self.out.0);
    }

    /// Returns the usage without the tokens that the upstream generated after the stream was cut, until it was closed.
    /// These tokens were not delivered and exceed the grant. If the upstream exceeded its own limit, they are not
    /// subtracted.
    pub fn usage_up_to_cut(&self) -> Usage {
        self.counter.usage_up_to(self.granted.granted().max(self.delivered.unwrap_or(0)))
    }

    /// Rewrites every received event that the grant covers.
    fn rewrite(&mut self) -> Option<StreamEnd> {
        loop {
            let data = self.decoder.next_data()?;
            self.events += 1;
            self.too_long += u64::from(matches!(data, Payload::TooLong(_)));
            match self.event(data, None, false) {
                EventStep::Delivered => {}
                EventStep::Blocked => return None,
                EventStep::Ended(end) => return Some(end),
            }
        }
    }

    /// Rewrites one event and counts its tokens. If the event was blocked, it was counted already, and `before` is the
    /// count before it. `exhausted` means that no more tokens can be granted.
    fn event(&mut self, data: Payload, before: Option<u64>, exhausted: bool) -> EventStep {
        if before.is_some() {
            self.reader.again();
        }
        let chunk = match self.reader.payload(&data) {
            Ok(Event::Chunk(chunk)) => chunk,
            Ok(Event::Done) => {
                return EventStep::Ended(self.close(true, "it sent [DONE] without a finish reason"));
            }
            Ok(Event::Failed(error, chunk)) => {
                self.counter.count_report_of(&chunk);
                return EventStep::Ended(StreamEnd::Complained(error));
            }
            Err(Nonsense::Malformed { .. }) => {
                self.skip(&data);
                return EventStep::Delivered;
            }
            Err(nonsense) => {
                self.count_unreadable(&data);
                return EventStep::Ended(self.unreadable(nonsense));
            }
        };
        self.odd.join(chunk.odd);
        self.odd.add_if(Oddity::WholeForStream, chunk.is_whole());
        let before = before.unwrap_or_else(|| self.count(&chunk));
        if self.is_covered() || self.ends_generation(&chunk) {
            return self.deliver(&chunk).map_or(EventStep::Delivered, EventStep::Ended);
        }
        let exhausted = exhausted || self.granted.is_complete();
        if exhausted && !chunk.has_output() {
            // Tokens without visible text were generated too.
            return EventStep::Ended(self.deliver(&chunk).unwrap_or(StreamEnd::GrantUsedUp));
        }
        drop(chunk);
        self.blocked = Some(Blocked { data, before });
        if exhausted { EventStep::Ended(StreamEnd::GrantUsedUp) } else { EventStep::Blocked }
    }

    /// Skips an event that is not JSON. If payloads are found in the event, they are read next.
    fn skip(&mut self, data: &Payload) {
        self.odd.add(Oddity::Frame);
        if !self.decoder.repair(data) {
            self.count_unreadable(data);
            // Words and dates serve as keep-alives and contain no output. A broken object may have contained output.
            self.is_unreadable |= data.is_like_an_object();
        }
    }

    /// Returns the finish reasons so far.
    pub fn finish_reasons(&self) -> &[FinishReason] {
        &self.finish_reasons
    }

    /// Returns whether this chunk has a finish reason or comes after all finish reasons, so that nothing more is
    /// generated.
    fn ends_generation(&self, chunk: &Chunk<'_>) -> bool {
        !chunk.has_output() && (self.writer.is_finished() || chunk.finish_reasons().next().is_some())
    }

    /// Writes a chunk. Returns the end of the stream if the client's dialect cannot express it.
    fn deliver(&mut self, chunk: &Chunk<'_>) -> Option<StreamEnd> {
        let written = self.writer.chunk(chunk, &mut self.out.0);
        let room = usize::from(MAX_CHOICES).saturating_sub(self.finish_reasons.len());
        self.finish_reasons.extend(chunk.finish_reasons().take(room));
        if chunk.finish_reasons().next().is_some() {
            self.goes_on = false;
        } else if chunk.has_output() {
            self.goes_on = true;
        }
        self.last_chunk = chunk.is_without_choices() && self.may_be_finished();
        self.is_reported_last = self.begun && chunk.is_last_report();
        written.err().map(|nonsense| self.unreadable(nonsense))
    }

    /// Gives up a stream whose rest cannot be read.
    fn unreadable(&mut self, nonsense: Nonsense) -> StreamEnd {
        self.give_up();
        nonsense.into()
    }

    /// Counts a chunk's tokens. Returns the count before it.
    fn count(&mut self, chunk: &Chunk<'_>) -> u64 {
        let before = self.counter.completion();
        self.counter.count_chunk(chunk);
        self.begun |= chunk.has_output();
        if let Some(unknown) = chunk.unknown_finish {
            self.unknown_finish.get_or_insert_with(|| unknown.to_owned());
        }
        before
    }

    /// Returns whether the granted tokens cover the count. If the upstream's limit is the granted number of tokens, a
    /// count that is only an estimate does not end the stream, unless the output proves that the upstream ignores its
    /// limit.
    fn is_covered(&self) -> bool {
        let counter = &self.counter;
        self.granted.covers(counter.completion())
            || (self.granted.is_complete() && counter.completion_is_estimate() && !counter.runs_away())
    }

    /// Ends the stream. The stream is complete if every choice is finished, because then the client has everything. If
    /// the upstream said that it has sent everything (`is_told`), but gave no finish reason, an answer with output is
    /// complete too. Any other stream has failed.
    fn close(&mut self, is_told: bool, reason: &str) -> StreamEnd {
        if self.is_complete() {
            return StreamEnd::Complete;
        }
        self.is_empty = is_told && !self.has_begun();
        if is_told && self.has_begun() {
            self.odd.add_if(Oddity::FinishMissing, self.writer.finished_choices() < self.choices);
            self.writer.end_untold(&mut self.out.0);
            return StreamEnd::Complete;
        }
        StreamEnd::Broken(reason.to_owned())
    }
}
