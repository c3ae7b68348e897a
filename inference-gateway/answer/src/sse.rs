//! Decodes the payloads of server-sent events from a body that arrives in arbitrary pieces.

pub(crate) mod payload;
mod repair;
mod repeats;

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr2;

use self::payload::{LongText, MAX_EVENT_BYTES, Payload, Text};

/// Byte order mark that some servers send first. The standard skips it once.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Decoder of event payloads as in the WHATWG HTML standard, section 9.2.6, without `id`, `retry` and `event`: events
/// of chat streams differ only in their data.
///
/// A body that is JSON instead of a stream is a single payload, returned at the end of the body.
///
/// A payload within one piece is a slice of it, not a copy. Only both ends of an overlong payload are kept, and the
/// stream continues.
#[derive(Debug, Default)]
pub struct Decoder {
    input: Bytes,
    /// Start of an incomplete line.
    partial: BytesMut,
    /// The incomplete line, once it is too long.
    long: Option<LongText>,
    /// Payload of an incomplete event.
    data: Option<Text>,
    /// Whether the last piece ended with a carriage return. A line feed at the start of the next piece belongs to it.
    after_carriage_return: bool,
    /// Whether a line was read, so a byte order mark is no longer skipped.
    begun: bool,
    form: StreamForm,
    /// Whether the body was JSON and has ended.
    is_of_body: bool,
    /// Payloads found within a broken one.
    repaired: VecDeque<Payload>,
}

/// What a body is, judged by its first byte that is not blank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StreamForm {
    #[default]
    Unknown,
    Events,
    Json,
}

impl StreamForm {
    fn of(piece: &[u8]) -> Self {
        // The byte order mark may come in pieces.
        let is_blank = |byte: &u8| byte.is_ascii_whitespace() || BYTE_ORDER_MARK.contains(byte);
        match piece.iter().find(|byte| !is_blank(byte)) {
            None => Self::Unknown,
            Some(b'{' | b'[') => Self::Json,
            Some(_) => Self::Events,
        }
    }
}

impl Decoder {
    /// Makes a decoder of a whole body of any length. Only [`Self::end`] has to be called.
    pub(crate) fn of_whole(body: Bytes) -> Self {
        let mut decoder = Self::default();
        if StreamForm::of(&body) == StreamForm::Json {
            decoder.is_of_body = true;
            decoder.repaired.push_back(Payload::Body(without_mark(body)));
        } else {
            decoder.push(body);
        }
        decoder
    }

    /// Takes the next piece of the body. [`Self::next_data`] must already have returned `None`.
    pub fn push(&mut self, piece: Bytes) {
        debug_assert!(self.input.is_empty(), "the piece before was read to its end");
        if self.form == StreamForm::Unknown {
            self.form = StreamForm::of(&piece);
        }
        self.input = piece;
    }

    /// Ends the body. The last event may lack the blank line after it. [`Self::next_data`] must already have returned
    /// `None`.
    pub fn end(&mut self) {
        if self.form == StreamForm::Json {
            self.form = StreamForm::Unknown;
            let body = std::mem::take(&mut self.partial).freeze();
            self.is_of_body = true;
            self.repaired.push_back(match self.long.take() {
                Some(long) => Text::Long(long).into_payload(),
                None => Payload::Body(without_mark(body)),
            });
            return;
        }
        self.input = Bytes::from_static(b"\n\n");
    }

    /// Returns whether the body was JSON instead of a stream.
    pub const fn is_of_body(&self) -> bool {
        self.is_of_body
    }

    /// Finds the payloads within a payload that is not JSON. They are returned next. Returns whether there are any.
    pub fn repair(&mut self, broken: &Payload) -> bool {
        let found = broken.repaired();
        let is_repaired = !found.is_empty();
        self.repaired.extend(found);
        is_repaired
    }

    /// Returns the payload of the next complete event; `None` if another piece is needed. Empty payloads are skipped.
    pub fn next_data(&mut self) -> Option<Payload> {
        if let Some(payload) = self.repaired.pop_front() {
            return Some(payload);
        }
        if self.form == StreamForm::Json {
            self.keep();
            return None;
        }
        loop {
            let line = self.next_line()?;
            if line.is_empty() {
                if let Some(data) = self.data.take().filter(|data| !data.is_empty()) {
                    return Some(data.into_payload());
                }
            } else if let Some(value) = line.data() {
                match self.data.take() {
                    // Some servers end an event with its line. In JSON, no object follows another without a comma.
                    Some(before) if before.is_event_before(&value) => {
                        self.data = Some(value);
                        return Some(before.into_payload());
                    }
                    Some(before) => self.data = Some(before.join(value)),
                    None => self.data = Some(value),
                }
            }
        }
    }

    /// Counts the bytes of the incomplete event and of input not read yet.
    pub fn held_bytes(&self) -> usize {
        let (long, data) = (self.long.as_ref(), self.data.as_ref());
        self.partial.len()
            + long.map_or(0, LongText::held_bytes)
            + data.map_or(0, Text::held_bytes)
            + self.input.len()
            + self.repaired.iter().map(Payload::held_bytes).sum::<usize>()
    }

    /// Keeps a piece of a body that is a single payload. If the body is too long, only both ends are kept.
    fn keep(&mut self) {
        let piece = std::mem::take(&mut self.input);
        match &mut self.long {
            Some(long) => long.push(&piece),
            None if self.partial.len() + piece.len() > MAX_EVENT_BYTES => {
                let mut long = LongText::of(&std::mem::take(&mut self.partial));
                long.push(&piece);
                self.long = Some(long);
            }
            None => self.partial.extend_from_slice(&piece),
        }
    }

    /// Returns the next line, without its end.
    fn next_line(&mut self) -> Option<Text> {
        if self.after_carriage_return && !self.input.is_empty() {
            self.after_carriage_return = false;
            if self.input[0] == b'\n' {
                self.input.advance(1);
            }
        }
        let end = memchr2(b'\n', b'\r', &self.input);
        let read = end.unwrap_or(self.input.len());
        if self.long.is_none() && self.partial.len() + read > MAX_EVENT_BYTES {
            self.long = Some(LongText::of(&std::mem::take(&mut self.partial)));
        }
        if let Some(long) = &mut self.long {
            let piece = self.input.split_to(read);
            long.push(&piece);
            end?;
        }
        let Some(end) = end else {
            self.partial.extend_from_slice(&std::mem::take(&mut self.input));
            return None;
        };
        let mut line = if self.long.is_some() { Bytes::new() } else { self.input.split_to(end) };
        if !self.partial.is_empty() {
            self.partial.extend_from_slice(&line);
            // The line takes the whole buffer, so that a large buffer is freed with it.
            line = std::mem::take(&mut self.partial).freeze();
        }
        self.end_line();
        let mut line = self.long.take().map_or(Text::Short(line), Text::Long);
        if !self.begun {
            self.begun = true;
            let beginning = line.beginning();
            if beginning.starts_with(BYTE_ORDER_MARK) {
                beginning.advance(BYTE_ORDER_MARK.len());
            }
        }
        Some(line)
    }

    /// Skips the end of the line: a line feed, a carriage return, or both.
    fn end_line(&mut self) {
        let carriage_return = self.input[0] == b'\r';
        self.input.advance(1);
        if carriage_return {
            match self.input.first() {
                Some(b'\n') => self.input.advance(1),
                Some(_) => {}
                None => self.after_carriage_return = true,
            }
        }
        if self.input.is_empty() {
            // An empty slice would keep the whole piece in memory, and prevent the connection from reusing its buffer.
            self.input = Bytes::new();
        }
    }
}

fn without_mark(mut body: Bytes) -> Bytes {
    if body.starts_with(BYTE_ORDER_MARK) {
        body.advance(BYTE_ORDER_MARK.len());
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sse::payload::{END_BYTES, PayloadEnds};
    use proptest::prelude::*;

    fn whole(payload: Payload) -> Bytes {
        let (Payload::Whole(data) | Payload::Body(data)) = payload else { panic!("it is too long") };
        data
    }

    /// Decodes the payloads of a body that arrives in these pieces.
    fn payloads<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let mut decoder = Decoder::default();
        let mut found = Vec::new();
        for piece in pieces {
            decoder.push(Bytes::copy_from_slice(piece));
            while let Some(data) = decoder.next_data() {
                found.push(String::from_utf8(whole(data).to_vec()).unwrap());
            }
        }
        found
    }

    #[test]
    fn a_piece_that_was_read_to_its_end_is_not_kept() {
        for ending in ["\n\n", "\r\n\r\n", "\n\ndata: 2"] {
            let piece = Bytes::from(format!("data: 1{ending}"));
            let mut decoder = Decoder::default();
            decoder.push(piece.clone());
            assert_eq!(decoder.next_data().map(whole), Some(Bytes::from_static(b"1")));
            assert_eq!(decoder.next_data(), None);
            assert!(piece.is_unique(), "{ending:?}");
        }
    }

    #[test]
    fn lines_end_in_all_three_ways() {
        assert_eq!(
            payloads([&b"data: a\n\ndata: b\r\n\r\ndata: c\r\rdata: d\n\r\ndata:e\r\n\n"[..]]),
            ["a", "b", "c", "d", "e"]
        );
    }

    #[test]
    fn only_data_counts() {
        let body =
            b": keep-alive\n\nevent: message\nid: 7\nretry: 1\ndata: a\n\ndatum: x\ndatas: y\n data: z\n\n";
        assert_eq!(payloads([&body[..]]), ["a"]);
    }

    #[test]
    fn one_blank_after_the_colon_is_no_part_of_the_payload() {
        assert_eq!(payloads([&b"data:a\n\ndata:  b \n\n"[..]]), ["a", " b "]);
    }

    #[test]
    fn lines_of_data_are_joined_and_empty_payloads_passed_over() {
        assert_eq!(
            payloads([&b"data: {\ndata: \"a\": 1\ndata\ndata: }\n\ndata:\n\ndata\n\n"[..]]),
            ["{\n\"a\": 1\n\n}"]
        );
    }

    #[test]
    fn an_object_that_follows_another_is_the_next_event_also_without_an_empty_line() {
        let body =
            b"data: {\"a\":1}\ndata: {\"b\":\ndata: {}}\ndata:{\"c\":[\ndata: 1]\ndata: }\ndata: [DONE]\n\n";
        let expected = ["{\"a\":1}", "{\"b\":\n{}}", "{\"c\":[\n1]\n}", "[DONE]"];
        assert_eq!(payloads([&body[..]]), expected);
        assert_eq!(payloads(body.chunks(1)), expected);
        // The end of the first event is known as soon as the next one begins.
        assert_eq!(payloads([&b"data: {}\ndata: {"[..], &b"}\n"[..]]), ["{}"]);
    }

    #[test]
    fn a_byte_order_mark_is_skipped_once() {
        assert_eq!(payloads([&b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n"[..]]), ["a"]);
    }

    #[test]
    fn an_event_whose_end_never_comes_is_none() {
        assert_eq!(payloads([&b"data: a\n\ndata: b\n"[..]]), ["a"]);
    }

    #[test]
    fn a_payload_within_one_piece_is_not_copied() {
        let piece = Bytes::from_static(b"data: abc\n\n");
        let mut decoder = Decoder::default();
        decoder.push(piece.clone());
        assert_eq!(decoder.next_data().map(whole).unwrap().as_ptr(), piece[6..].as_ptr());
    }

    #[test]
    fn of_an_event_that_is_too_long_both_ends_are_kept_and_the_next_one_is_read() {
        let inside = "x".repeat(1 << 20);
        for (before, after, lines) in
            [("", "", false), ("\n", "", true), (": comment\n", ": comment\n", true)]
        {
            for piece_bytes in [MAX_EVENT_BYTES * 2, 999_983] {
                let between = if lines { "\ndata: " } else { "" };
                let long = vec![&*inside; 17].join(between);
                let body = format!("{before}data: <{long}>\n{after}\ndata: next\n\n");
                let (mut decoder, mut found, mut most) = (Decoder::default(), Vec::new(), 0);
                for piece in body.as_bytes().chunks(piece_bytes) {
                    decoder.push(Bytes::copy_from_slice(piece));
                    found.extend(std::iter::from_fn(|| decoder.next_data()));
                    most = most.max(decoder.held_bytes());
                }
                let [Payload::TooLong(PayloadEnds { start, end }), Payload::Whole(next)] = &found[..] else {
                    panic!("{} payloads", found.len())
                };
                assert_eq!(
                    (start.len().min(END_BYTES - 6), end.len()),
                    (END_BYTES - 6, END_BYTES),
                    "{lines}"
                );
                assert!(start.starts_with(b"<xx") && end.ends_with(b"xx>"), "{lines}");
                assert_eq!((&next[..], decoder.held_bytes()), (&b"next"[..], 0));
                assert!(most <= MAX_EVENT_BYTES + inside.len() + 2 * END_BYTES, "{most}");
            }
        }
    }

    #[test]
    fn a_comment_that_is_too_long_is_ignored() {
        let body = format!(": {}\ndata: a\n\n", "x".repeat(MAX_EVENT_BYTES));
        assert_eq!(payloads([body.as_bytes()]), ["a"]);
        assert_eq!(payloads(body.as_bytes().chunks(1 << 20)), ["a"]);
    }

    #[test]
    fn an_event_that_does_not_end_takes_no_more_memory_than_the_longest() {
        for end in ["", "\n"] {
            let piece = Bytes::from(format!("data:{}{end}", "x".repeat(1 << 20)));
            let mut decoder = Decoder::default();
            for _ in 0..40 {
                decoder.push(piece.clone());
                assert_eq!(decoder.next_data(), None);
                assert!(decoder.held_bytes() <= MAX_EVENT_BYTES, "{}", decoder.held_bytes());
            }
            assert!(decoder.held_bytes() <= 4 * END_BYTES);
        }
    }

    #[test]
    fn an_event_is_held_until_it_ends() {
        let mut decoder = Decoder::default();
        for (piece, held, complete) in
            [("data: abc", 9, false), ("def\ndata: g", 13, false), ("\n\n", 0, true), (": x", 3, false)]
        {
            decoder.push(Bytes::from_static(piece.as_bytes()));
            assert_eq!(decoder.next_data().is_some(), complete, "{piece}");
            assert_eq!(decoder.held_bytes(), held, "{piece}");
        }
    }

    proptest! {
        #[test]
        fn where_the_body_is_cut_makes_no_difference(
            lines in prop::collection::vec(("(data|data: ?|: |event: )?[a-c\u{feff}é]{0,3}", "(\n|\r\n|\r)"), 0..12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let body: Vec<u8> = lines.into_iter().flat_map(|(line, end)| (line + &end).into_bytes()).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.index(body.len() + 1)).collect();
            cuts.extend([0, body.len()]);
            cuts.sort_unstable();
            let whole = payloads([&body[..]]);
            prop_assert_eq!(&payloads(cuts.windows(2).map(|cut| &body[cut[0]..cut[1]])), &whole);
            prop_assert_eq!(&payloads(body.chunks(1)), &whole);
        }

        #[test]
        fn whatever_comes_is_survived(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..8)) {
            let mut decoder = Decoder::default();
            for piece in pieces {
                decoder.push(Bytes::from(piece));
                while decoder.next_data().is_some() {}
            }
        }
    }
}
