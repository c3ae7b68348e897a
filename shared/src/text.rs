//! Texts from outside, made fit for a log line, an error message or a label.

use std::fmt::Write;

/// The mark of a text that was cut.
const CUT: char = '…';

/// A text of which at most so many characters are shown, those that a terminal or a reader could be deceived with as escapes.
pub fn shown(text: &str, most: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(most));
    for (place, c) in text.chars().enumerate() {
        if place == most {
            shown.push(CUT);
            break;
        }
        if is_control(c) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "{}", c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// The beginning of a text, of at most so many characters.
pub fn cut(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end])
}

/// Returns whether a character commands rather than shows: the control characters, the separators of lines and paragraphs, and
/// the marks that turn the direction of what follows, which can make a name read as another one.
pub fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_text_has_an_end_and_no_commands() {
        assert_eq!(shown("plain, größer, 漢字", 80), "plain, größer, 漢字");
        assert_eq!(shown("a\u{1b}[31mb\nc\u{202e}d\u{2028}", 80), r"a\u{1b}[31mb\u{a}c\u{202e}d\u{2028}");
        assert_eq!(shown(&"x".repeat(1_000_000), 3), "xxx…");
        assert_eq!(shown("xyz", 3), "xyz");
        assert_eq!((cut("äöü", 2), cut("äöü", 3), cut("", 0)), ("äö", "äöü", ""));
    }
}
