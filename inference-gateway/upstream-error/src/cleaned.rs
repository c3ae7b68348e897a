//! Removes what a client must not read from an upstream's words.

use shared::text::is_control;

use crate::{inside, operator};

/// Replaces what is removed from a sentence.
const LEFT_OUT: char = '…';

/// Beginnings of sentences that point elsewhere, in lower case.
const REFERENCES: [&str; 20] = [
    "visit",
    "see",
    "please see",
    "please visit",
    "please go",
    "please refer",
    "please consult",
    "for more",
    "for details",
    "learn more",
    "need more",
    "read",
    "refer",
    "manage",
    "configure",
    "enable it",
    "contact",
    "to increase",
    "you can",
    "more info",
];

/// Returns a text's sentences about the request. Sentences about the operator's account, links, credentials and stack
/// traces are removed. In the remaining sentences, each address, path and account name is replaced by a mark.
pub(super) fn cleaned(text: &str) -> Option<String> {
    if inside::has_stack(text) {
        return None;
    }
    let mut kept = String::with_capacity(text.len());
    for sentence in sentences(text) {
        let Some(sentence) = cleaned_sentence(sentence) else { continue };
        if !kept.is_empty() {
            kept.push(' ');
        }
        kept.push_str(&sentence);
    }
    kept.contains(char::is_alphanumeric).then_some(kept)
}

fn cleaned_sentence(sentence: &str) -> Option<String> {
    let shown: String = sentence.chars().map(|c| if is_control(c) { ' ' } else { c }).collect();
    let shown = shown.trim();
    let lower = shown.to_lowercase();
    let leads_away = REFERENCES.iter().any(|words| lower.starts_with(words)) && inside::has_address(&lower);
    if leads_away
        || inside::refers(shown)
        || operator::is_for_operator(shown)
        || inside::has_credential(&lower)
    {
        return None;
    }
    let masked = masked(&without_addresses(shown));
    (!inside::leaks_internals(&masked)).then_some(masked)
}

/// Splits a text after each sentence, and at line ends.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(['\n', '\r']).flat_map(|line| line.split_inclusive(". "));
    parts.filter(|sentence| !sentence.trim().is_empty())
}

/// Replaces each address that has a scheme, including its query.
fn without_addresses(sentence: &str) -> String {
    let (mut kept, mut rest) = (String::with_capacity(sentence.len()), sentence);
    while let Some(at) = rest.find("://") {
        let is_of_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let start = rest[..at].trim_end_matches(is_of_scheme).len();
        let ends = |c: char| c.is_whitespace() || "\"'`<>".contains(c);
        let length = rest[at..].find(ends).unwrap_or(rest.len() - at);
        let address = &rest[..at + length];
        let address = address.trim_end_matches(['.', ',', ';', ')', '!', '?']);
        kept.push_str(&rest[..start]);
        kept.push(LEFT_OUT);
        rest = &rest[address.len().max(at + 3)..];
    }
    kept + rest
}

/// Replaces words that name something internal, or something that belongs to the operator.
fn masked(sentence: &str) -> String {
    let (mut kept, mut before) = (String::with_capacity(sentence.len()), String::new());
    for part in sentence.split_inclusive(inside::ends_word) {
        let (word, end) = match part.char_indices().next_back() {
            Some((at, c)) if inside::ends_word(c) => part.split_at(at),
            _ => (part, ""),
        };
        let plain = word.trim_end_matches(['.', '!', '?', ':']);
        let lower = plain.to_lowercase();
        if inside::is_internal(&lower) || operator::is_name(&lower, &before) {
            kept.push(LEFT_OUT);
            kept.push_str(&word[plain.len()..]);
        } else {
            kept.push_str(word);
        }
        kept.push_str(end);
        if !lower.is_empty() {
            before = lower;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_keeps_what_it_says_of_the_request() {
        for (text, kept) in [
            (
                "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at https://docs.claude.com/en/docs/x#y",
                Some("`max_tokens` must be greater than `thinking.budget_tokens`."),
            ),
            (
                "Invalid 'tools[0].name': string too long. See https://example.com/x?key=abc for more.",
                Some("Invalid 'tools[0].name': string too long."),
            ),
            (
                "Error while downloading https://me.example.com/a.png?sig=s3cret. Upstream status code: 404.",
                Some("Error while downloading …. Upstream status code: 404."),
            ),
            (
                "No tool output found for function call call_0123456789abcdef01234567.",
                Some("No tool output found for function call …."),
            ),
            (
                "Request too large for model `m` in organization `org_01abcdef` service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 12345, please reduce your message size and try again. Need more tokens? Upgrade to Dev Tier today at https://console.groq.com/settings/billing",
                Some(
                    "Request too large for model `m` in organization `…` service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 12345, please reduce your message size and try again.",
                ),
            ),
            ("cannot open /models/7b/config.json: try another", Some("cannot open …: try another")),
            ("temperature is\u{1b}[2J too\u{202e} high\nby 1", Some("temperature is [2J too  high by 1")),
            ("bad key sk-SECRET123456 at http://10.0.0.5:8000/v1", None),
            ("A value is wrong. The key sk-SECRET123456 is, too.", Some("A value is wrong.")),
            ("Bad input. Traceback (most recent call last): x", None),
            ("https://a.example.com/b", None),
            ("", None),
        ] {
            assert_eq!(cleaned(text).as_deref(), kept, "{text}");
        }
    }
}
