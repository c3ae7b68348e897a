//! Upper bound of the tokens of a prompt, computed from its bytes.
//!
//! A hold is opened on this bound before anything is counted, so it may be too high but never too low. It is high
//! enough because:
//! - A token of a byte-level BPE, or of a unigram model with byte fallback, stands for at least one byte. So the text
//!   that the model's template renders has at most as many tokens as bytes.
//! - Templates show texts unchanged or as JSON. Texts count as the client spelled them in JSON, quotes included: an
//!   escape is never shorter than its character (`\u00e9` has six bytes, `é` has two), and a text that is written as
//!   JSON again needs no more escapes than the client used.
//! - Some tokenizers compose text first (Unicode's NFC), which lengthens a few characters. Those count more.
//! - Tools and schemas are parsed and rewritten, by some templates with indentation, by some with `<`, `>`, `&` and `'`
//!   escaped as `\u003c`. The longest of these spellings counts.
//! - The constants below cover the templates' own text: markers around messages, and how to call tools.
//! - Images count at the model's own bound for each image. Their bytes are not text.

use shared_catalog::Model;

/// Tokens around the messages: a beginning, the markers that open the answer, and a template's short system prompt.
const PER_REQUEST: u64 = 64;
/// Tokens around each message: the markers and the name of the role.
const PER_MESSAGE: u64 = 16;
/// Tokens that explain to the model how to call tools or format an answer. The longest known explanations have 300.
const PER_PREAMBLE: u64 = 512;
/// Tokens around each tool, tool call, and tool answer: markers, or the tags of templates that write XML.
const PER_TOOL: u64 = 64;

/// Tokens that a vendor adds to describe one of its own tools that clients run. The longest descriptions have about
/// 750.
const PER_VENDORS_TOOL: u64 = 1024;

/// Usual number of bytes of text per token.
pub const BYTES_PER_TOKEN: u64 = 4;

/// Maximum number of counted bytes per token. The longest known tokens are 128 blanks. A blank that the client spelled
/// as an escape counts as six bytes, and rewritten JSON adds about the same again.
const COUNTED_BYTES_PER_TOKEN: u64 = 1024;

/// Maximum number of varied bytes per token. Long words in scripts with three bytes per letter reach about 60.
const VARIED_BYTES_PER_TOKEN: u64 = 128;
/// Length from which a text's varied bytes are counted. Shorter texts would add few tokens, and every request would pay
/// for the count.
const LONG_TEXT: usize = 4 << 10;
/// The longest escape of a character in JSON.
const LONGEST_ESCAPE: u64 = 6;

/// Number of spaces per level of indentation in templates' JSON.
const INDENT: u64 = 4;
/// Length of the longest float that a renderer writes for a number with an exponent.
const FLOAT: u64 = 24;
/// Maximum number of nested levels in a tool or schema. Upstreams have recursive parsers, which fail or crash at 100 or
/// more.
pub const MAX_DEPTH: u64 = 64;

/// A value is nested deeper than [`MAX_DEPTH`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooDeep;

/// Size of the parts of a request that a template may show.
#[derive(Clone, Copy, Debug, Default)]
pub struct PromptSize {
    bytes: u64,
    /// Maximum number of tokens that the template itself adds.
    markers: u64,
    /// Whether tools or the format of an answer must be explained to the model.
    preamble: bool,
    /// Whether templates show more than text: tools, tool calls, JSON, or template parameters.
    more_than_texts: bool,
    /// Minimum number of bytes in long texts that do not repeat the bytes before them.
    varied: u64,
    /// Number of images. No text shows their tokens.
    pub images: u64,
}

impl PromptSize {
    /// Counts the markers of a message.
    pub fn message(&mut self) {
        self.markers += PER_MESSAGE;
    }

    /// Counts the markers of a tool or of a tool call.
    pub fn tool(&mut self) {
        self.markers += PER_TOOL;
        self.more_than_texts = true;
    }

    /// Counts a token that the prompt contains as a number.
    pub fn token(&mut self) {
        self.more_than_texts = true;
        self.bytes += 1;
    }

    /// Counts an explanation of tools or of an answer's format.
    pub fn preamble(&mut self) {
        self.preamble = true;
        self.more_than_texts = true;
    }

    /// Counts a string that is shown. `token` is the string as spelled in JSON.
    pub fn text(&mut self, token: &str) {
        self.bytes += token.len() as u64 + growth(token);
    }

    /// Counts the varied bytes of a string that every template shows, unlike earlier reasoning. `token` is the string
    /// as spelled in JSON.
    pub fn kept(&mut self, token: &str) {
        if token.len() >= LONG_TEXT {
            self.varied += varied(token);
        }
    }

    /// Counts a JSON value that templates rewrite.
    pub fn json(&mut self, json: &str) -> Result<(), TooDeep> {
        self.more_than_texts = true;
        self.bytes += rewritten(json)? + growth(json);
        Ok(())
    }

    /// Counts a text that should be JSON. Templates show it unchanged, rewritten, or as a JSON string.
    pub fn maybe_json(&mut self, text: &str) {
        // A text nested too deeply for a parser is shown only as a string, which is at most six times as long.
        self.bytes += rewritten(text).unwrap_or(6 * text.len() as u64) + growth(text);
    }

    /// Counts a JSON value that is passed on unread and read by the upstream.
    pub fn unread(&mut self, json: &str) {
        self.more_than_texts = true;
        self.maybe_json(json);
    }

    /// Counts a vendor's description of its own tool.
    pub fn vendors_tool(&mut self) {
        self.preamble();
        self.tool();
        self.markers += PER_VENDORS_TOOL;
    }

    /// Adds the counts of another part of the request.
    pub fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.markers += other.markers;
        self.preamble |= other.preamble;
        self.more_than_texts |= other.more_than_texts;
    }

    /// Counts a parameter that is passed on as spelled. Templates do not show it, but the server receives its bytes.
    pub fn passed_on(&mut self, json: &str) {
        self.bytes += json.len() as u64;
    }

    /// Returns whether tools or the format of an answer are explained to the model.
    pub const fn has_preamble(&self) -> bool {
        self.preamble
    }

    /// Returns whether a prompt is only text, so that its reported tokens show what the template adds.
    pub const fn is_plain(&self) -> bool {
        !self.more_than_texts && self.images == 0
    }

    /// Returns the upper bound of the prompt's tokens. It may exceed the catalogue's context window: an upstream with a
    /// larger window accepts such a prompt, and the hold must cover all of it.
    pub fn bound(&self, model: &Model) -> u64 {
        self.most_of_text().saturating_add(self.most_of_images(model))
    }

    /// Returns the lower bound of the prompt's tokens. Images may count as zero.
    pub fn least(&self) -> u64 {
        (self.bytes / COUNTED_BYTES_PER_TOKEN).max(self.varied / VARIED_BYTES_PER_TOKEN) + 1
    }

    /// Returns the tokens to bill for a prompt that was not counted: one for each [`BYTES_PER_TOKEN`] bytes of text.
    /// Images vary more, so they count at their bound.
    pub fn estimate(&self, model: &Model) -> u64 {
        self.most_of_text().div_ceil(BYTES_PER_TOKEN).saturating_add(self.most_of_images(model))
    }

    fn most_of_text(&self) -> u64 {
        let own = PER_REQUEST + self.markers + if self.preamble { PER_PREAMBLE } else { 0 };
        self.bytes + own
    }

    /// Returns the upper bound of the tokens of all images.
    pub const fn most_of_images(&self, model: &Model) -> u64 {
        self.images.saturating_mul(model.max_tokens_per_image)
    }
}

/// For each byte of a text, the number of bytes in its longest JSON spelling.
const SPELLED: [u8; 256] = {
    let mut spelled = [1; 256];
    let mut byte = u8::MAX;
    loop {
        spelled[byte as usize] = match byte {
            0..0x20 | b'<' | b'>' | b'&' | b'\'' => 6,
            b'"' | b'\\' => 2,
            0x80.. => 3, // a character of two bytes becomes an escape of six
            _ => 1,
        };
        let Some(next) = byte.checked_sub(1) else { break spelled };
        byte = next;
    }
};

/// Returns the upper bound of the bytes of a JSON text that is rewritten. A text that is not JSON counts at least as a
/// JSON string.
fn rewritten(json: &str) -> Result<u64, TooDeep> {
    let (mut bytes, mut depth, mut in_string, mut escaped) = (2, 0_u64, false, false);
    for byte in json.bytes() {
        bytes += u64::from(SPELLED[usize::from(byte)]);
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        // Bytes of a line break, and of the indentation after it.
        let new_line = 1 + INDENT * depth.min(MAX_DEPTH);
        bytes += match byte {
            b'{' | b'[' => {
                depth += 1;
                new_line + INDENT
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                new_line
            }
            b',' => new_line,
            b':' => 1,
            b'e' | b'E' => FLOAT,
            _ => 0,
        };
        in_string = byte == b'"';
        if depth > MAX_DEPTH {
            return Err(TooDeep);
        }
    }
    Ok(bytes)
}

/// Returns the lower bound of the bytes of a text that differ from the four before them, since tokens of hundreds of
/// bytes repeat one or two characters. `token` is the text as spelled in JSON. Escapes do not count, since they may
/// spell one character repeatedly.
fn varied(token: &str) -> u64 {
    let bytes = token.as_bytes();
    let different = bytes.array_windows().filter(|[before @ .., byte]: &&[u8; 5]| !before.contains(byte));
    let escapes = memchr::memchr_iter(b'\\', bytes);
    (different.count() as u64).saturating_sub(LONGEST_ESCAPE * escapes.count() as u64)
}

/// Returns the upper bound of the bytes that Unicode normalisation (NFC or NFKC) by a tokenizer adds to a text.
fn growth(text: &str) -> u64 {
    if text.is_ascii() {
        return 0;
    }
    text.chars().map(added_by_composition_or_compatibility).sum()
}

/// Returns the maximum number of bytes that one character may add. The ranges are those of Unicode 14, joined across
/// rare characters.
const fn added_by_composition_or_compatibility(c: char) -> u64 {
    match c {
        '\u{f77}'..='\u{f79}' | '\u{2033}'..='\u{2037}' | '\u{222c}'..='\u{2230}' => 6,
        // A mark may separate a letter from its accent. The accent is then written separately, as is the stroke of ⫝̸.
        '\u{300}'..='\u{36f}' | '\u{2adc}' | '\u{587}' | '\u{675}'..='\u{678}' | '\u{1fc1}'..='\u{1fee}' => 2,
        // Spacing accents; letters of South Asia, Tibet and Hebrew, and some ideographs, which NFC decomposes.
        '\u{a0}'..='\u{be}'
        | '\u{37a}'..='\u{385}'
        | '\u{958}'..='\u{95f}'
        | '\u{9dc}'..='\u{9df}'
        | '\u{a33}'
        | '\u{a36}'
        | '\u{a59}'..='\u{a5e}'
        | '\u{b5c}'..='\u{b5d}'
        | '\u{e33}'
        | '\u{eb3}'
        | '\u{edc}'..='\u{edd}'
        | '\u{f43}'..='\u{fb9}'
        | '\u{2150}'..='\u{2189}'
        | '\u{309b}'..='\u{309f}'
        | '\u{30ff}'
        | '\u{327c}'..='\u{327d}'
        | '\u{32c0}'..='\u{32ff}'
        | '\u{fa6c}'..='\u{fad7}'
        | '\u{fb1d}'..='\u{fb4e}'
        | '\u{fbdd}'..='\u{fdc7}' => 3,
        '\u{13f}'..='\u{149}'
        | '\u{1c4}'..='\u{1c6}'
        | '\u{2d8}'..='\u{2dd}'
        | '\u{247d}'..='\u{2487}'
        | '\u{fb13}'..='\u{fb17}'
        | '\u{fb4f}'
        | '\u{fe71}'..='\u{fefc}' => 1,
        '\u{3200}'..='\u{3243}' | '\u{fdf0}'..='\u{fdf9}' | '\u{1f12a}'..='\u{1f248}' => 5,
        // Musical notes; quadruple primes and integrals; squared words; Arabic ligatures of a whole phrase.
        '\u{1d15e}'..='\u{1d1c0}' => 8,
        '\u{2057}' | '\u{2a0c}' => 9,
        '\u{3300}'..='\u{33fe}' => 15,
        '\u{fdfa}'..='\u{fdfc}' => 30,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// Writes a value with indented lines, as one family of templates writes tools.
    fn indented(value: &Value, depth: usize) -> String {
        let line = |depth: usize| format!("\n{}", " ".repeat(4 * depth));
        let list = |open, items: Vec<String>, close| {
            let items: Vec<_> = items.into_iter().map(|item| line(depth + 1) + &item).collect();
            format!("{open}{}{}{close}", items.join(","), line(depth))
        };
        match value {
            Value::Array(items) => list("[", items.iter().map(|i| indented(i, depth + 1)).collect(), "]"),
            Value::Object(members) => {
                let member =
                    |(name, v): (&String, &Value)| format!("{}: {}", json!(name), indented(v, depth + 1));
                list("{", members.iter().map(member).collect(), "}")
            }
            other => other.to_string(),
        }
    }

    /// Escapes every string as much as any renderer does.
    fn escaped(json: &str) -> String {
        let escape = |c: char| match c {
            '<' | '>' | '&' | '\'' => format!("\\u{:04x}", c as u32),
            c if c.is_ascii() => c.to_string(),
            c => c
                .encode_utf16(&mut [0; 2])
                .iter()
                .map(|unit| format!("\\u{unit:04x}"))
                .collect::<Vec<_>>()
                .concat(),
        };
        json.chars().map(escape).collect()
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(|n| json!(n)),
            any::<f64>().prop_map(|n| json!(n)),
            ".{0,8}|[<>&'\"\\\\\n]{0,4}".prop_map(Value::from)
        ];
        leaf.prop_recursive(5, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
                prop::collection::btree_map(".{0,5}", inner, 0..5).prop_map(|m| m.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_renderer_writes_json_longer_than_it_is_counted(value in value()) {
            let counted = rewritten(&value.to_string()).unwrap();
            prop_assert!(counted >= indented(&value, 0).len() as u64);
            prop_assert!(counted >= escaped(&indented(&value, 0)).len() as u64);
        }

        #[test]
        fn no_text_is_longer_as_a_json_string_than_it_is_counted(text in ".{0,20}|[<\"\\\\\n{\\[,é]{0,9}") {
            prop_assert!(rewritten(&text).unwrap() >= escaped(&json!(text).to_string()).len() as u64);
        }
    }

    #[test]
    fn a_number_with_an_exponent_counts_as_the_float_it_becomes() {
        assert!(rewritten("[1e15]").unwrap() >= "[1000000000000000.0]".len() as u64);
    }

    #[test]
    fn nesting_has_a_bound() {
        let nested = |levels| "[".repeat(levels) + &"]".repeat(levels);
        assert!(rewritten(&nested(64)).is_ok());
        assert_eq!(rewritten(&nested(65)), Err(TooDeep));
        assert!(rewritten(&format!("\"{}\"", nested(65))).is_ok(), "brackets in a string nest nothing");
    }

    #[test]
    fn repeated_characters_are_not_varied_however_they_are_spelled() {
        for repeated in [" ", "=", "─", "🙂", "-=", "ÃÂ", r"\u0020", r"\n", r"\t\n"] {
            let text = repeated.repeat(LONG_TEXT);
            assert!(varied(&text) <= 12, "{repeated}: {}", varied(&text));
        }
        let words = "all sorts of words ".repeat(LONG_TEXT);
        assert!(varied(&words) > words.len() as u64 / 2);
        assert_eq!((varied(""), varied("abc"), varied("abcde")), (0, 0, 1));
    }

    #[test]
    fn characters_that_composition_lengthens_count_as_what_they_become() {
        for (text, composed) in [
            ("\u{1d160}", 12),
            ("\u{958}", 6),
            ("\u{fb2c}", 6),
            ("\u{344}", 4),
            ("é\u{323}", 5),
            ("\u{2adc}", 5),
            ("\u{fdfa}", 33),
            ("\u{3316}", 18),
            ("\u{2057}", 12),
        ] {
            assert!(text.len() as u64 + growth(text) >= composed, "{text:?}");
        }
        assert_eq!(growth("plain"), 0);
        assert_eq!(growth("größer 漢字 ру́сский"), 2);
    }

    mod fuzz {
        use shared_fuzz::{Examples, Input, fuzz};

        use super::*;

        /// JSON counts for the longest spelling of any renderer, and so does a text that is not JSON.
        #[test]
        fn bounds_of_json() {
            fuzz(&Examples::folder("chat").and(Examples::folder("messages")), |input: &Input| {
                let text = input.text();
                let Ok(counted) = rewritten(&text) else { return };
                assert!(counted >= escaped(&json!(text).to_string()).len() as u64);
                if let Ok(value) = serde_json::from_str::<Value>(&text) {
                    assert!(counted >= escaped(&indented(&value, 0)).len() as u64);
                }
                let mut size = PromptSize::default();
                size.maybe_json(&text);
                size.kept(&text);
                assert!(size.bytes >= counted && size.least() <= size.most_of_text());
            });
        }
    }
}
