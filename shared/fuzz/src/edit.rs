//! Edits of an example. They change single bytes, or values in JSON, in TOML and in addresses.

use std::ops::Range;

use rand::{Rng, rngs::StdRng};

/// Values that a parser may not expect. Each is on a line of its own.
const WORDS: &str = include_str!("words.txt");

/// Characters with which formats mark their structure.
const MARKS: &[u8] = b"\n\r \t\"\\,:;=.-+{}[]()/%&@#\0";

/// A change to an example. A position is taken modulo the example's length.
#[derive(Clone, Copy, Debug)]
pub(super) enum Edit {
    Flip { at: u32, bit: u8 },
    Insert { at: u32, byte: u8 },
    InsertMark { at: u32, mark: u8 },
    Delete { at: u32, length: u8 },
    Repeat { at: u32, length: u8 },
    Truncate { at: u32 },
    Splice { at: u32, example: u8, from: u32 },
    ReplaceByWord { at: u32, word: u8 },
    ReplaceByValue { at: u32, example: u8, from: u32 },
    RemoveValue { at: u32 },
    RepeatValue { at: u32 },
    Nest { at: u32, levels: u8 },
}

impl Edit {
    /// Chooses an edit at random. All kinds are equally likely.
    pub(super) fn random(random: &mut StdRng) -> Self {
        let (at, from, byte, example) = random.random();
        match random.random_range(0..12) {
            0 => Self::Flip { at, bit: byte },
            1 => Self::Insert { at, byte },
            2 => Self::InsertMark { at, mark: byte },
            3 => Self::Delete { at, length: byte },
            4 => Self::Repeat { at, length: byte },
            5 => Self::Truncate { at },
            6 => Self::Splice { at, example, from },
            7 => Self::ReplaceByWord { at, word: byte },
            8 => Self::ReplaceByValue { at, example, from },
            9 => Self::RemoveValue { at },
            10 => Self::RepeatValue { at },
            _ => Self::Nest { at, levels: byte },
        }
    }

    /// Edits `bytes`. Some edits insert part of another example.
    pub(super) fn apply(self, bytes: &mut Vec<u8>, examples: &[Vec<u8>]) {
        let example = |number: u8| &examples[usize::from(number) % examples.len()];
        match self {
            Self::Flip { at, bit } => {
                let at = place(bytes, at);
                bytes[at..].iter_mut().take(1).for_each(|byte| *byte ^= 1 << (bit % 8));
            }
            Self::Insert { at, byte } => bytes.insert(place(bytes, at), byte),
            Self::InsertMark { at, mark } => {
                bytes.insert(place(bytes, at), MARKS[usize::from(mark) % MARKS.len()]);
            }
            Self::Delete { at, length } => drop(bytes.drain(range(bytes, at, length))),
            Self::Repeat { at, length } => repeat(bytes, range(bytes, at, length), b""),
            Self::Truncate { at } => bytes.truncate(place(bytes, at)),
            Self::Splice { at, example: other, from } => {
                bytes.truncate(place(bytes, at));
                let other = example(other);
                bytes.extend(&other[place(other, from)..]);
            }
            Self::ReplaceByWord { at, word } => {
                let word = WORDS.lines().nth(usize::from(word) % WORDS.lines().count()).unwrap_or_default();
                bytes.splice(value(bytes, at), word.bytes());
            }
            Self::ReplaceByValue { at, example: other, from } => {
                let other = example(other);
                bytes.splice(value(bytes, at), other[value(other, from)].iter().copied());
            }
            Self::RemoveValue { at } => {
                let Range { start, end } = value(bytes, at);
                let comma = usize::from(bytes.get(end) == Some(&b','));
                bytes.drain(start..end + comma);
            }
            Self::RepeatValue { at } => repeat(bytes, value(bytes, at), b","),
            Self::Nest { at, levels } => {
                let Range { start, end } = value(bytes, at);
                bytes.splice(end..end, std::iter::repeat_n(b']', levels.into()));
                bytes.splice(start..start, std::iter::repeat_n(b'[', levels.into()));
            }
        }
    }
}

fn place(bytes: &[u8], at: u32) -> usize {
    at as usize % (bytes.len() + 1)
}

fn range(bytes: &[u8], at: u32, length: u8) -> Range<usize> {
    let start = place(bytes, at);
    start..bytes.len().min(start + usize::from(length))
}

fn repeat(bytes: &mut Vec<u8>, range: Range<usize>, between: &[u8]) {
    let again = [between, &bytes[range.clone()]].concat();
    bytes.splice(range.end..range.end, again);
}

/// Finds the next value after a position: a string, a list, an object or, if none of these follows, a word.
fn value(bytes: &[u8], at: u32) -> Range<usize> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.+-".contains(byte);
    let at = place(bytes, at);
    let begins = |byte: &u8| is_word(byte) || b"\"{[".contains(byte);
    let Some(start) = bytes[at..].iter().position(begins).map(|found| at + found) else { return at..at };
    if is_word(&bytes[start]) {
        let length = bytes[start..].iter().take_while(|byte| is_word(byte)).count();
        return start..start + length;
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (number, byte) in bytes.iter().enumerate().skip(start) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && !in_string {
            return start..number + 1;
        }
    }
    start..bytes.len()
}
