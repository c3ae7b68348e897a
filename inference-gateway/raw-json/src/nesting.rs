//! Measures how deeply a JSON text is nested, even if the text arrives in pieces.

use memchr::{memchr2, memchr2_iter};

/// A scan of a JSON text for its brackets. Brackets within strings do not count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nesting {
    levels: u64,
    in_string: bool,
    /// The next byte is escaped.
    is_escaped: bool,
    /// A bracket was opened.
    has_begun: bool,
}

impl Nesting {
    /// Takes the next piece of the text.
    pub fn push(&mut self, piece: &str) {
        self.exceeds(piece, u64::MAX);
    }

    /// Returns whether an object or a list began, and has ended.
    pub const fn is_complete(&self) -> bool {
        self.has_begun && self.levels == 0 && !self.in_string
    }

    /// Takes the next piece of the text, up to the bracket that exceeds this many levels. Returns whether there is one.
    fn exceeds(&mut self, piece: &str, most: u64) -> bool {
        let mut rest = piece.as_bytes();
        while let Some((byte, behind)) = rest.split_first() {
            if self.is_escaped {
                self.is_escaped = false;
                rest = behind;
            } else if self.in_string {
                let Some(at) = memchr2(b'"', b'\\', rest) else { return false };
                self.is_escaped = rest[at] == b'\\';
                self.in_string = self.is_escaped;
                rest = &rest[at + 1..];
            } else {
                match byte {
                    b'"' => self.in_string = true,
                    b'{' | b'[' => {
                        self.has_begun = true;
                        self.levels += 1;
                    }
                    b'}' | b']' => self.levels = self.levels.saturating_sub(1),
                    _ => {}
                }
                if self.levels > most {
                    return true;
                }
                rest = behind;
            }
        }
        false
    }
}

/// Returns whether a JSON text is nested in more than this many levels.
pub fn is_deeper_than(json: &str, most: u64) -> bool {
    // A quick check: nearly every text has fewer brackets than this, including those in its strings.
    let has_more = |most| memchr2_iter(b'[', b'{', json.as_bytes()).nth(most).is_some();
    usize::try_from(most).is_ok_and(has_more) && Nesting::default().exceeds(json, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_brackets_outside_of_strings_are_levels() {
        let nested = |levels: usize| format!("{}\"[\\\"[[{{\\\\\"{}", "[".repeat(levels), "]".repeat(levels));
        for levels in [1, 64, 256] {
            let most = levels as u64;
            assert!(!is_deeper_than(&nested(levels), most) && is_deeper_than(&nested(levels + 1), most));
            assert!(is_deeper_than(&nested(200_000), most));
            assert!(is_deeper_than(&"{\"a\":".repeat(200_000), most));
            assert!(!is_deeper_than(&format!("[\"{}\"]", "[".repeat(1000)), most));
            assert!(!is_deeper_than(&"[],{},".repeat(levels), most));
        }
        let flat = ["[\"", r#"[{\"\\"#, "\"]"].concat();
        assert!(!is_deeper_than(&format!("[{}0]", [&*flat, ","].concat().repeat(256)), 256), "{flat}");
    }

    #[test]
    fn where_an_object_is_cut_makes_no_difference_to_where_it_ends() {
        let object = r#" {"a":["}\\\"]",{}],"é\u007d":1}"#;
        for size in 1..object.len() {
            let mut nesting = Nesting::default();
            let mut pieces = Vec::new();
            let mut rest = object;
            while !rest.is_empty() {
                let at = (size..=rest.len()).find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
                let (piece, behind) = rest.split_at(at);
                pieces.push(piece);
                rest = behind;
            }
            for (at, piece) in pieces.iter().enumerate() {
                assert!(!nesting.is_complete(), "{:?}", &pieces[..at]);
                nesting.push(piece);
            }
            assert!(nesting.is_complete(), "{size}");
        }
        let mut text = Nesting::default();
        text.push("null");
        assert!(!text.is_complete());
    }
}
