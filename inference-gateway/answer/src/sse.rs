//! Decodes payloads of server-sent events from a body that arrives in arbitrary pieces.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr2;

/// Longest accepted event in bytes. A chunk of a token or two has a few hundred bytes. The rest is for upstreams that
/// send a whole answer as one event: 131,072 tokens of eight choices, as JSON.
const MAX_EVENT_BYTES: usize = 16 << 20;

/// Byte order mark that some servers send first. The standard says to skip it once.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// An event is longer than `MAX_EVENT_BYTES`, so the rest of the stream cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {MAX_EVENT_BYTES} bytes")]
pub struct EventTooLong;

/// Decoder of event payloads, by the WHATWG HTML standard, section 9.2.6, without `id`, `retry` and `event`: events of
/// chat streams differ only in their data.
///
/// A payload that lies within one piece is a slice of it, not a copy.
#[derive(Debug, Default)]
pub struct Decoder {
    input: Bytes,
    /// Beginning of an incomplete line.
    partial: BytesMut,
    /// Payload of an incomplete event.
    data: Option<Bytes>,
    /// The last piece ended with a carriage return that ended a line. A line feed at the start of the next one belongs
    /// to it.
    after_carriage_return: bool,
    /// A line was read, so a byte order mark is no longer skipped.
    begun: bool,
}

impl Decoder {
    /// Takes the next piece of the body. [`Self::next_data`] must have returned `None` before.
    pub fn push(&mut self, piece: Bytes) {
        debug_assert!(self.input.is_empty(), "the piece before was read to its end");
        self.input = piece;
    }

    /// Returns the payload of the next complete event; `None` if another piece is needed. Empty payloads are skipped.
    pub fn next_data(&mut self) -> Option<Result<Bytes, EventTooLong>> {
        loop {
            let line = match self.next_line() {
                Ok(line) => line?,
                Err(e) => return Some(Err(e)),
            };
            if line.is_empty() {
                match self.data.take() {
                    Some(data) if !data.is_empty() => return Some(Ok(data)),
                    Some(_) | None => {}
                }
            } else if let Err(e) = self.field(&line) {
                return Some(Err(e));
            }
        }
    }

    /// Bytes of the incomplete event, and of input not read yet.
    pub fn held_bytes(&self) -> usize {
        self.partial.len() + self.data.as_ref().map_or(0, Bytes::len) + self.input.len()
    }

    /// Returns the next line, without its end.
    fn next_line(&mut self) -> Result<Option<Bytes>, EventTooLong> {
        if self.after_carriage_return && !self.input.is_empty() {
            self.after_carriage_return = false;
            if self.input[0] == b'\n' {
                self.input.advance(1);
            }
        }
        let end = memchr2(b'\n', b'\r', &self.input);
        if self.partial.len() + end.unwrap_or(self.input.len()) > MAX_EVENT_BYTES {
            return Err(EventTooLong);
        }
        let Some(end) = end else {
            self.partial.extend_from_slice(&std::mem::take(&mut self.input));
            return Ok(None);
        };
        let mut line = self.input.split_to(end);
        if !self.partial.is_empty() {
            self.partial.extend_from_slice(&line);
            // The line takes the whole buffer, so that its memory is freed with it, however large.
            line = std::mem::take(&mut self.partial).freeze();
        }
        self.end_line();
        if !self.begun {
            self.begun = true;
            if line.starts_with(BYTE_ORDER_MARK) {
                line.advance(BYTE_ORDER_MARK.len());
            }
        }
        Ok(Some(line))
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
            // An empty slice would keep the whole piece in memory, and keep the connection from reusing its buffer.
            self.input = Bytes::new();
        }
    }

    /// Takes a line that is not empty. Only the field `data` has a meaning; other fields and comments are ignored.
    fn field(&mut self, line: &Bytes) -> Result<(), EventTooLong> {
        let value = match line.strip_prefix(b"data") {
            Some([]) => Bytes::new(),
            Some([b':', b' ', ..]) => line.slice(6..),
            Some([b':', ..]) => line.slice(5..),
            Some(_) | None => return Ok(()),
        };
        let Some(before) = self.data.take() else {
            self.data = Some(value);
            return Ok(());
        };
        if before.len() + 1 + value.len() > MAX_EVENT_BYTES {
            return Err(EventTooLong);
        }
        // The payload grows in place unless it is shared.
        let mut joined = BytesMut::from(before);
        joined.extend_from_slice(b"\n");
        joined.extend_from_slice(&value);
        self.data = Some(joined.freeze());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Payloads of a body that arrives in these pieces.
    fn payloads<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let mut decoder = Decoder::default();
        let mut found = Vec::new();
        for piece in pieces {
            decoder.push(Bytes::copy_from_slice(piece));
            while let Some(data) = decoder.next_data() {
                found.push(String::from_utf8(data.unwrap().to_vec()).unwrap());
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
            assert_eq!(decoder.next_data(), Some(Ok(Bytes::from_static(b"1"))));
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
        assert_eq!(decoder.next_data().unwrap().unwrap().as_ptr(), piece[6..].as_ptr());
    }

    #[test]
    fn an_event_without_end_is_refused_rather_than_kept() {
        let line = format!("data:{}", "x".repeat(1024));
        for end in ["", "\n"] {
            let piece = Bytes::from(line.clone() + end);
            let mut decoder = Decoder::default();
            let mut pieces = 0;
            let refused = loop {
                decoder.push(piece.clone());
                pieces += 1;
                if let Some(data) = decoder.next_data() {
                    break data;
                }
            };
            assert_eq!(refused, Err(EventTooLong));
            assert!((MAX_EVENT_BYTES / 1030..=MAX_EVENT_BYTES / 1024 + 1).contains(&pieces), "{pieces}");
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
