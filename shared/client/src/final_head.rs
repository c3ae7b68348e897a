//! A limit on what a server may send before the final head of its answer.
//!
//! Within one step of the connection's task, Hyper skips any number of interim heads (`100 Continue`, `103 Early
//! Hints`). So without this limit, a server that sends only interim heads would keep the thread from serving all other
//! connections.

use std::{io, task::Context};

use crate::watched_stream::{StreamWatch, WatchedStream};

/// Maximum number of interim heads before an answer. Servers send one or two.
const MAX_INTERIM_HEADS: usize = 16;
/// Maximum number of bytes up to the end of the final head. It is twice the size of a large head.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Length of a status line up to the end of its status code, as in `HTTP/1.1 200`.
const STATUS: usize = 12;
/// Text with which every status line begins.
const PROTOCOL: &[u8] = b"HTTP/1.";

/// Error that ends a connection whose server exceeded the limits before the final head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer has no final head within {MAX_INTERIM_HEADS} interim heads and {} KiB", MAX_HEAD_BYTES >> 10)]
pub struct NoFinalHead;

/// A client's connection. It fails with [`NoFinalHead`] if an answer exceeds the limits.
pub(crate) type FinalHead<S> = WatchedStream<S, Heads>;

/// Reads the heads of an answer up to the end of the final head, and counts them.
#[derive(Debug, Default)]
pub struct Heads {
    place: HeadState,
    /// Number of bytes in the heads of the answer so far.
    bytes: usize,
    interim: usize,
}

/// What the next byte of the connection belongs to.
#[derive(Debug, Default)]
enum HeadState {
    /// The body of an answer, or nothing because no answer is expected. Such bytes are not counted.
    #[default]
    Past,
    /// A status line, up to the end of its code. Contains its bytes so far, and their number.
    Status([u8; STATUS], usize),
    /// The rest of a head.
    Lines {
        is_interim: bool,
        /// Whether the current line contains only carriage returns so far.
        is_blank: bool,
    },
}

impl Heads {
    /// Called when a request is written: expects the head of an answer. It is also called when the rest of a request is
    /// written after its answer has begun. Then the next bytes are no status line, and are skipped.
    fn await_answer(&mut self) {
        if matches!(self.place, HeadState::Past) {
            *self = Self { place: HeadState::Status([0; STATUS], 0), bytes: 0, interim: 0 };
        }
    }

    fn read(&mut self, mut bytes: &[u8]) -> Result<(), NoFinalHead> {
        while !bytes.is_empty() && !matches!(self.place, HeadState::Past) {
            let read = self.read_part(bytes);
            bytes = &bytes[read..];
            self.bytes += read;
            if self.bytes > MAX_HEAD_BYTES || self.interim > MAX_INTERIM_HEADS {
                return Err(NoFinalHead);
            }
        }
        Ok(())
    }

    /// Reads part of a status line, or the rest of a header line. Returns the number of bytes that it read.
    fn read_part(&mut self, bytes: &[u8]) -> usize {
        match &mut self.place {
            HeadState::Past => bytes.len(),
            // Parsers skip empty lines before a status line.
            HeadState::Status(_, 0) if matches!(bytes[0], b'\r' | b'\n') => 1,
            HeadState::Status(status, count) => {
                let read = bytes.len().min(STATUS - *count);
                status[*count..*count + read].copy_from_slice(&bytes[..read]);
                *count += read;
                if *count == STATUS {
                    self.place = after_status(status);
                }
                read
            }
            HeadState::Lines { is_interim, is_blank } => {
                let end = bytes.iter().position(|byte| *byte == b'\n');
                let line = &bytes[..end.unwrap_or(bytes.len())];
                *is_blank &= line.iter().all(|byte| *byte == b'\r');
                if end.is_none() {
                    return line.len();
                }
                match (*is_blank, *is_interim) {
                    (false, _) => *is_blank = true,
                    (true, false) => self.place = HeadState::Past,
                    (true, true) => {
                        self.interim += 1;
                        self.place = HeadState::Status([0; STATUS], 0);
                    }
                }
                line.len() + 1
            }
        }
    }
}

/// Returns the state after the code of a status line. If the bytes are no status line, the parser must refuse them.
fn after_status(status: &[u8; STATUS]) -> HeadState {
    if !status.starts_with(PROTOCOL) {
        return HeadState::Past;
    }
    let code = &status[STATUS - 3..];
    // After 101 the connection speaks another protocol, so no further head follows.
    HeadState::Lines { is_interim: code[0] == b'1' && code != b"101", is_blank: false }
}

impl StreamWatch for Heads {
    fn after_read(&mut self, _: &mut Context<'_>, _waits: bool, bytes: &[u8]) -> io::Result<()> {
        self.read(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    fn before_write(&mut self) {
        self.await_answer();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERIM: &str = "HTTP/1.1 100 Continue\r\n\r\n";
    const FINAL: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nOK";

    /// Reads an answer in pieces of this size. Returns whether it reached the end of the answer's final head.
    fn read(answer: &str, piece: usize) -> Result<bool, NoFinalHead> {
        let mut heads = Heads::default();
        heads.await_answer();
        answer.as_bytes().chunks(piece).try_for_each(|piece| heads.read(piece))?;
        Ok(matches!(heads.place, HeadState::Past))
    }

    #[test]
    fn sixteen_interim_heads_are_read_and_one_more_ends_the_connection_however_they_come() {
        let hints = "HTTP/1.0 103 Early Hints\nlink: </a>\r\nx: \r\n\n";
        for interim in [INTERIM, hints, "\r\n\nHTTP/1.1 199 x\r\n\r\n"] {
            for piece in [1, 7, 1 << 20] {
                assert_eq!(read(&(interim.repeat(16) + FINAL), piece), Ok(true), "{interim} by {piece}");
                assert_eq!(
                    read(&(interim.repeat(17) + FINAL), piece),
                    Err(NoFinalHead),
                    "{interim} by {piece}"
                );
            }
        }
    }

    #[test]
    fn heads_have_64_kib_together() {
        let field = |bytes: usize| format!("x-filler: {}\r\n", "x".repeat(bytes - 12));
        let heads = |interim: usize, last: usize| {
            let interim = format!("HTTP/1.1 103 Hints\r\n{}\r\n", field(interim - 22));
            interim + &format!("HTTP/1.1 200 OK\r\n{}\r\n", field(last - 19))
        };
        let half = MAX_HEAD_BYTES / 2;
        for piece in [1, 4096, 1 << 20] {
            assert_eq!(read(&heads(half, half), piece), Ok(true));
            assert_eq!(read(&heads(half, half + 1), piece), Err(NoFinalHead));
            assert_eq!(read(&"\r\n".repeat(MAX_HEAD_BYTES), piece), Err(NoFinalHead));
        }
    }

    #[test]
    fn each_answer_of_a_connection_has_bounds_of_its_own_and_bodies_count_for_nothing() {
        let mut heads = Heads::default();
        let body = vec![b'x'; 1 << 20];
        for _ in 0..3 {
            heads.await_answer();
            heads.read((INTERIM.repeat(16) + FINAL).as_bytes()).unwrap();
            heads.read(&body).unwrap();
            // The rest of the request is written while the body of its answer arrives.
            heads.await_answer();
            heads.read(&body).unwrap();
            assert!(matches!(heads.place, HeadState::Past));
        }
    }

    mod fuzz {
        use shared_fuzz::{Examples, Input, fuzz};

        use super::*;

        /// However an answer is cut into pieces, the result is the same, and its heads end at the same byte.
        #[test]
        fn heads_of_answers() {
            let hints = "HTTP/1.0 103 Early Hints\nlink: </a>\r\nx: \r\n\n".repeat(15);
            let examples = [FINAL.to_owned(), INTERIM.repeat(16) + FINAL, hints + INTERIM + INTERIM + FINAL];
            fuzz(&Examples::of(examples), |input: &Input| {
                let run = |pieces: &[&[u8]]| {
                    let mut heads = Heads::default();
                    heads.await_answer();
                    pieces.iter().try_for_each(|piece| heads.read(piece)).map(|()| {
                        assert!(heads.interim <= MAX_INTERIM_HEADS && heads.bytes <= MAX_HEAD_BYTES);
                        (matches!(heads.place, HeadState::Past), heads.bytes, heads.interim)
                    })
                };
                assert_eq!(run(&input.pieces()), run(&[input.bytes()]));
            });
        }
    }
}
