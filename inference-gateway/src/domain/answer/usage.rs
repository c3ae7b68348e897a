//! Tokens, as upstreams report them and as clients read them.

use std::num::IntErrorKind;

use bytes::BytesMut;
use serde::Deserialize;
use shared::{json::RawValue, money::NanoUsd, tokens::Usage};

use super::{put, put_number};

/// A number of tokens that no context window comes near. Larger reports count as this one: its sums do not overflow, and its
/// cost is beyond any credit.
const MOST_TOKENS: u64 = 1 << 32;

/// The usage that an upstream reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reported {
    /// Tokens that are billed.
    pub(crate) tokens: Usage,
    /// Of the completion's tokens, those that were thoughts.
    pub(crate) reasoning: u64,
}

#[derive(Deserialize)]
struct RawUsage<'a> {
    #[serde(borrow)]
    prompt_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    completion_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    total_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_tokens_details: Option<&'a RawValue>,
    #[serde(borrow)]
    completion_tokens_details: Option<&'a RawValue>,
    /// Reasoning tokens, as SGLang reports them.
    #[serde(borrow)]
    reasoning_tokens: Option<&'a RawValue>,
    /// Cached tokens of the prompt, as DeepSeek reports them.
    #[serde(borrow)]
    prompt_cache_hit_tokens: Option<&'a RawValue>,
    /// Cached tokens of the prompt, as Moonshot reports them.
    #[serde(borrow)]
    cached_tokens: Option<&'a RawValue>,
}

/// Timings that llama.cpp's server adds to every chunk if it is asked for `timings_per_token`.
#[derive(Deserialize)]
struct RawTimings<'a> {
    /// Tokens of the prompt that were cached.
    #[serde(borrow, rename = "cache_n")]
    cached: Option<&'a RawValue>,
    /// Those that were read.
    #[serde(borrow, rename = "prompt_n")]
    read: Option<&'a RawValue>,
    /// Tokens generated, of this choice alone.
    #[serde(borrow, rename = "predicted_n")]
    generated: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct RawDetails<'a> {
    #[serde(borrow)]
    cached_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_tokens: Option<&'a RawValue>,
}

impl Reported {
    /// Reads a `usage`. `None` where it lacks the tokens of the prompt or those of the completion.
    pub(super) fn read(usage: &RawValue) -> Option<Self> {
        let raw: RawUsage<'_> = serde_json::from_str(usage.get()).ok()?;
        // No template renders an empty prompt: a server that reports zero has not counted.
        let prompt = count(raw.prompt_tokens).filter(|prompt| *prompt > 0)?;
        let rest_of_total = count(raw.total_tokens).and_then(|total| total.checked_sub(prompt));
        // A completion that is no number of tokens makes the whole report doubtful.
        let stated = match raw.completion_tokens {
            Some(stated) => count(Some(stated)),
            None => rest_of_total,
        }?;
        // Some report reasoning beside the completion: the total has it all.
        let completion = rest_of_total.map_or(stated, |rest| rest.max(stated));
        let cached = [
            details(raw.prompt_tokens_details).cached_tokens,
            raw.prompt_cache_hit_tokens,
            raw.cached_tokens,
        ];
        let cached = cached.into_iter().find_map(count).unwrap_or(0);
        let reasoning = count(details(raw.completion_tokens_details).reasoning_tokens);
        let reasoning =
            reasoning.or_else(|| count(raw.reasoning_tokens)).unwrap_or(0).max(completion - stated);
        Some(Self {
            tokens: Usage { prompt, cached: cached.min(prompt), completion },
            reasoning: reasoning.min(completion),
        })
    }

    /// The last `usage` in the end of a body that is not read whole.
    pub(crate) fn find_last(end: &[u8]) -> Option<Self> {
        let name = memchr::memmem::rfind(end, br#""usage""#)?;
        let value = end[name + r#""usage""#.len()..].trim_ascii_start().strip_prefix(b":")?;
        let mut values = serde_json::Deserializer::from_slice(value).into_iter::<Box<RawValue>>();
        Self::read(&values.next()?.ok()?)
    }

    /// Reads `timings`, which report the same of one choice.
    pub(super) fn read_timings(timings: &RawValue) -> Option<Self> {
        let raw: RawTimings<'_> = serde_json::from_str(timings.get()).ok()?;
        let cached = count(raw.cached).unwrap_or(0);
        let prompt = Some(cached + count(raw.read)?).filter(|prompt| *prompt > 0)?;
        let tokens = Usage { prompt, cached, completion: count(raw.generated)? };
        Some(Self { tokens, reasoning: 0 })
    }

    /// Writes the `usage` that clients read. `cost` is what was billed; it is left out where that is not known yet.
    pub(super) fn write(&self, cost: Option<NanoUsd>, out: &mut BytesMut) {
        let Usage { prompt, cached, completion } = self.tokens;
        put(out, r#"{"prompt_tokens":"#);
        put_number(out, prompt);
        put(out, r#","completion_tokens":"#);
        put_number(out, completion);
        put(out, r#","total_tokens":"#);
        put_number(out, prompt.saturating_add(completion));
        put(out, r#","prompt_tokens_details":{"cached_tokens":"#);
        put_number(out, cached);
        put(out, r#"},"completion_tokens_details":{"reasoning_tokens":"#);
        put_number(out, self.reasoning);
        put(out, "}");
        if let Some(cost) = cost {
            put(out, r#","cost":"#);
            put(out, &cost.to_string());
        }
        put(out, "}");
    }
}

/// A number of tokens; whatever is none is as good as absent.
fn count(value: Option<&RawValue>) -> Option<u64> {
    match value?.get().parse::<u64>() {
        Ok(tokens) => Some(tokens.min(MOST_TOKENS)),
        Err(e) if *e.kind() == IntErrorKind::PosOverflow => Some(MOST_TOKENS),
        Err(_) => None,
    }
}

fn details(value: Option<&RawValue>) -> RawDetails<'_> {
    value.and_then(|value| serde_json::from_str(value.get()).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(usage: &str) -> Option<(u64, u64, u64, u64)> {
        let raw: &RawValue = serde_json::from_str(usage).unwrap();
        Reported::read(raw).map(|r| (r.tokens.prompt, r.tokens.cached, r.tokens.completion, r.reasoning))
    }

    #[test]
    fn usage_is_read_from_every_shape() {
        for (usage, expected) in [
            (r#"{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17}"#, (12, 0, 5, 0)),
            (
                r#"{"prompt_tokens":12,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":8}}"#,
                (12, 8, 5, 0),
            ),
            (
                r#"{"prompt_tokens":12,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":13}}"#,
                (12, 12, 5, 0),
            ),
            (r#"{"prompt_tokens":12,"completion_tokens":5,"prompt_tokens_details":null}"#, (12, 0, 5, 0)),
            (
                r#"{"prompt_tokens":12,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":null}}"#,
                (12, 0, 5, 0),
            ),
            (
                r#"{"prompt_tokens":12,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":-1}}"#,
                (12, 0, 5, 0),
            ),
            (r#"{"prompt_tokens":12,"completion_tokens":5,"prompt_tokens_details":7}"#, (12, 0, 5, 0)),
            (r#"{"prompt_tokens":12,"completion_tokens":5,"reasoning_tokens":3}"#, (12, 0, 5, 3)),
            (
                r#"{"prompt_tokens":12,"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":4}}"#,
                (12, 0, 5, 4),
            ),
            (
                r#"{"prompt_tokens":12,"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":9}}"#,
                (12, 0, 5, 5),
            ),
            (
                r#"{"prompt_tokens":12,"completion_tokens":5,"prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":4}"#,
                (12, 8, 5, 0),
            ),
            (r#"{"prompt_tokens":12,"completion_tokens":5,"cached_tokens":8}"#, (12, 8, 5, 0)),
            (r#"{"prompt_tokens":12,"total_tokens":17}"#, (12, 0, 5, 0)),
            // Reasoning beside the completion, as xAI reports it.
            (r#"{"prompt_tokens":12,"completion_tokens":1,"total_tokens":399}"#, (12, 0, 387, 386)),
            (
                r#"{"prompt_tokens":12,"completion_tokens":1,"total_tokens":399,"completion_tokens_details":{"reasoning_tokens":386}}"#,
                (12, 0, 387, 386),
            ),
            (r#"{"prompt_tokens":12,"completion_tokens":5,"total_tokens":7}"#, (12, 0, 5, 0)),
            (r#"{"prompt_tokens":12,"completion_tokens":null,"total_tokens":17}"#, (12, 0, 5, 0)),
            (r#"{"prompt_tokens":1,"completion_tokens":0,"unknown":[{}]}"#, (1, 0, 0, 0)),
        ] {
            assert_eq!(read(usage), Some(expected), "{usage}");
        }
    }

    #[test]
    fn a_prompt_of_no_tokens_was_not_counted() {
        assert_eq!(read(r#"{"prompt_tokens":0,"completion_tokens":5,"total_tokens":5}"#), None);
    }

    #[test]
    fn what_is_no_number_of_tokens_is_as_good_as_absent() {
        for wrong in ["-1", "1.5", "12.0", "1e3", "\"12\"", "null", "[]", "{}", "true"] {
            assert_eq!(
                read(&format!(r#"{{"prompt_tokens":{wrong},"completion_tokens":5}}"#)),
                None,
                "{wrong}"
            );
            assert_eq!(
                read(&format!(r#"{{"prompt_tokens":5,"completion_tokens":{wrong}}}"#)),
                None,
                "{wrong}"
            );
        }
        assert_eq!(read(r#"{"prompt_tokens":5,"completion_tokens":-5,"total_tokens":5}"#), None);
        for no_usage in [
            "{}",
            "[]",
            "7",
            "\"x\"",
            r#"{"completion_tokens":5}"#,
            r#"{"prompt_tokens":9,"total_tokens":5}"#,
        ] {
            assert_eq!(read(no_usage), None, "{no_usage}");
        }
    }

    #[test]
    fn a_number_beyond_all_bounds_is_never_replaced_by_less() {
        for tokens in ["4294967296", "9223372036854775807", "99999999999999999999"] {
            let usage = format!(r#"{{"prompt_tokens":5,"completion_tokens":{tokens}}}"#);
            assert_eq!(read(&usage), Some((5, 0, MOST_TOKENS, 0)), "{tokens}");
        }
    }

    #[test]
    fn timings_contain_what_a_choice_has_used_so_far() {
        let read = |timings: &str| {
            let raw: &RawValue = serde_json::from_str(timings).unwrap();
            Reported::read_timings(raw).map(|reported| reported.tokens)
        };
        let timings =
            r#"{"cache_n":236,"prompt_n":1,"prompt_ms":30.958,"predicted_n":35,"predicted_ms":661.064}"#;
        assert_eq!(read(timings), Some(Usage { prompt: 237, cached: 236, completion: 35 }));
        assert_eq!(
            read(r#"{"prompt_n":9,"predicted_n":1}"#),
            Some(Usage { prompt: 9, cached: 0, completion: 1 })
        );
        for none in [
            "{}",
            "[]",
            r#"{"cache_n":0,"prompt_n":0,"predicted_n":0}"#,
            r#"{"prompt_n":-1,"predicted_n":1}"#,
        ] {
            assert_eq!(read(none), None, "{none}");
        }
    }

    #[test]
    fn usage_is_found_at_the_end_of_a_body() {
        let end = br#""}],"usage" : {"prompt_tokens":12,"completion_tokens":60000}, "id": "x"}"#;
        assert_eq!(Reported::find_last(end).unwrap().tokens.completion, 60_000);
        assert_eq!(Reported::find_last(br#"{"usage": {"prompt_tok"#), None);
        assert_eq!(Reported::find_last(b"{}"), None);
    }

    #[test]
    fn usage_is_written_with_its_cost_to_the_last_nano_usd() {
        let reported = Reported { tokens: Usage { prompt: 12, cached: 0, completion: 5 }, reasoning: 0 };
        let mut out = BytesMut::new();
        reported.write(Some(NanoUsd::from_nanos(3200)), &mut out);
        assert_eq!(
            out,
            r#"{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0},"cost":0.0000032}"#
        );
        out.clear();
        reported.write(None, &mut out);
        assert!(out.ends_with(br#""completion_tokens_details":{"reasoning_tokens":0}}"#));
    }
}
