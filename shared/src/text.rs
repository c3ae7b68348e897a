//! Makes texts that come from outside safe for log lines, error messages and labels.

use std::fmt::Write;

use http::{Method, Uri};

use crate::credential::key::without_keys;

/// Character that is appended to a text that was cut.
const CUT: char = '…';
const MAX_SHOWN_PATH: usize = 200;
/// Maximum number of characters of an HTTP method that are shown. Clients may invent methods of any length.
const MAX_SHOWN_METHOD: usize = 20;

/// Returns at most `most` characters of a text for display. Characters that could control a terminal or deceive a
/// reader are escaped.
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

/// Returns the path of a request for errors and logs. Keys that some clients put into the path are removed.
pub fn shown_path(uri: &Uri) -> String {
    shown(&without_keys(uri.path()), MAX_SHOWN_PATH)
}

/// Returns a request's method for errors and logs.
pub fn shown_method(method: &Method) -> String {
    shown(method.as_str(), MAX_SHOWN_METHOD)
}

/// Returns a text with a capital letter at the beginning.
pub fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(chars).collect()
}

/// Turns a reason into a sentence: with a capital letter at the beginning and a full stop at the end.
pub fn sentence(reason: &str) -> String {
    capitalised(reason) + "."
}

/// Writes digits with a comma between thousands.
pub fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the first characters of a text, at most `most` of them.
pub fn cut(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end])
}

/// Returns whether a character has an effect but no shape. These are control characters, separators of lines and
/// paragraphs, and bidirectional controls, which can make a name look like another.
pub fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Returns whether a character is invisible or looks like a space. A name that contains such a character could look
/// like another name. These are the characters of [`is_control`], spaces other than U+0020, format characters
/// (Unicode's category Cf), and all characters that are not rendered (`Default_Ignorable_Code_Point`, and the blank of
/// Braille).
fn is_invisible(c: char) -> bool {
    is_control(c)
        || (c.is_whitespace() && c != ' ')
        || matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{6dd}' | '\u{70f}' | '\u{890}' | '\u{891}' | '\u{8e2}'
                | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
                | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Returns whether a text is a name: it has at most `most` characters, is on one line, and contains no invisible
/// characters.
pub fn is_name(text: &str, most: usize) -> bool {
    let is_short = (1..=most).contains(&text.chars().count());
    is_short && text.trim() == text && !text.chars().any(is_invisible)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_comma_before_every_three_digits() {
        let texts = ["0", "12", "999", "1000", "12345", "1000000"].map(grouped);
        assert_eq!(texts, ["0", "12", "999", "1,000", "12,345", "1,000,000"]);
    }

    #[test]
    fn a_shown_text_has_an_end_and_no_commands() {
        assert_eq!(shown("plain, größer, 漢字", 80), "plain, größer, 漢字");
        assert_eq!(shown("a\u{1b}[31mb\nc\u{202e}d\u{2028}", 80), r"a\u{1b}[31mb\u{a}c\u{202e}d\u{2028}");
        assert_eq!(shown(&"x".repeat(1_000_000), 3), "xxx…");
        assert_eq!(shown("xyz", 3), "xyz");
        assert_eq!((cut("äöü", 2), cut("äöü", 3), cut("", 0)), ("äö", "äöü", ""));
    }
    #[test]
    fn characters_that_no_one_sees_are_invisible_and_letters_of_every_script_are_not() {
        for hidden in [
            '\u{200b}',
            '\u{200d}',
            '\u{feff}',
            '\u{ad}',
            '\u{2028}',
            '\u{202e}',
            '\u{e0041}',
            '\u{a0}',
            '\n',
        ] {
            assert!(is_invisible(hidden), "{hidden:?}");
        }
        assert!(!"Ann Größer-O'Neil 漢字 हिन्दी مفتاح 🦀 ann+x@example.com".contains(is_invisible));
    }

    #[test]
    fn a_name_can_be_seen_and_told_from_others() {
        for name in ["a", "Ann Größer", "漢字", "xyz"] {
            assert!(is_name(name, 10), "{name}");
        }
        for other in ["", " ", " a", "a ", "a\nb", "ac\u{200b}me", "a\u{a0}b", "\u{2800}", "eleven char"] {
            assert!(!is_name(other, 10), "{other:?}");
        }
    }
}
