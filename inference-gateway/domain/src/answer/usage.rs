//! Token counts in upstreams' reports and in clients' answers.

use std::num::IntErrorKind;

use bytes::BytesMut;
use serde::Deserialize;
use shared::{json::RawValue, money::NanoUsd, tokens::Usage};

use super::{put, put_number};

/// Count that stands for all larger counts too: beyond any believable request, and small enough that sums of counts do
/// not overflow.
pub const MOST_TOKENS: u64 = 1 << 40;

/// The usage that an upstream reports: each member is `None` where absent, or no number of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Tokens of the prompt, cached tokens included.
    pub prompt: Option<u64>,
    /// Tokens of the prompt that were cached.
    pub cached: Option<u64>,
    /// Tokens generated.
    pub completion: Option<u64>,
    /// Generated tokens that were thoughts.
    pub reasoning: Option<u64>,
    /// Tokens of the prompt and the output together.
    pub total: Option<u64>,
}

/// The usage that a client reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerUsage {
    /// Tokens that are billed.
    pub tokens: Usage,
    /// Part of the completion's tokens spent on thoughts.
    pub reasoning: u64,
}

/// The members of a usage, under the names of various servers.
#[derive(Deserialize)]
struct RawUsage<'a> {
    #[serde(borrow)]
    prompt_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    completion_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    output_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    total_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_tokens_details: Option<&'a RawValue>,
    #[serde(borrow)]
    input_tokens_details: Option<&'a RawValue>,
    #[serde(borrow)]
    completion_tokens_details: Option<&'a RawValue>,
    #[serde(borrow)]
    output_tokens_details: Option<&'a RawValue>,
    /// Reasoning tokens, by SGLang's name.
    #[serde(borrow)]
    reasoning_tokens: Option<&'a RawValue>,
    /// Cached tokens of the prompt, by DeepSeek's name.
    #[serde(borrow)]
    prompt_cache_hit_tokens: Option<&'a RawValue>,
    /// Cached tokens of the prompt, by Moonshot's name.
    #[serde(borrow)]
    cached_tokens: Option<&'a RawValue>,
}

/// Timings that llama.cpp's server adds to every chunk on request (`timings_per_token`).
#[derive(Deserialize)]
struct RawTimings<'a> {
    /// Tokens of the prompt that were cached.
    #[serde(borrow, rename = "cache_n")]
    cached: Option<&'a RawValue>,
    /// Tokens of the prompt that were read.
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
    /// Reads a `usage`. The largest of several names' counts wins: servers that know two names may leave one at zero.
    pub(super) fn read(usage: &RawValue) -> Self {
        let Ok(raw) = serde_json::from_str::<RawUsage<'_>>(usage.get()) else { return Self::default() };
        let prompts = [raw.prompt_tokens_details, raw.input_tokens_details].map(details);
        let outputs = [raw.completion_tokens_details, raw.output_tokens_details].map(details);
        Self {
            prompt: counted_prompt(largest([raw.prompt_tokens, raw.input_tokens])),
            cached: largest([
                prompts[0].cached_tokens,
                prompts[1].cached_tokens,
                raw.prompt_cache_hit_tokens,
                raw.cached_tokens,
            ]),
            completion: largest([raw.completion_tokens, raw.output_tokens]),
            reasoning: largest([
                outputs[0].reasoning_tokens,
                outputs[1].reasoning_tokens,
                raw.reasoning_tokens,
            ]),
            total: count(raw.total_tokens),
        }
    }

    /// The last `usage` in the end of a body that is not read whole.
    pub fn find_last(end: &[u8]) -> Self {
        let find = || {
            let name = memchr::memmem::rfind(end, br#""usage""#)?;
            let value = end[name + r#""usage""#.len()..].trim_ascii_start().strip_prefix(b":")?;
            let mut values = serde_json::Deserializer::from_slice(value).into_iter::<Box<RawValue>>();
            Some(Self::read(&values.next()?.ok()?))
        };
        find().unwrap_or_default()
    }

    /// Reads `timings`, which report the usage of a single choice.
    pub(super) fn read_timings(timings: &RawValue) -> Self {
        let Ok(raw) = serde_json::from_str::<RawTimings<'_>>(timings.get()) else { return Self::default() };
        let cached = count(raw.cached);
        let prompt = counted_prompt(count(raw.read).map(|read| read + cached.unwrap_or(0)));
        Self { prompt, cached, completion: count(raw.generated), ..Self::default() }
    }

    /// Takes the larger of both, member by member: usage only grows, whatever the order and pieces of reports.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        self.join(other, Ord::max)
    }

    /// Keeps the members within `bounds`.
    #[must_use]
    pub fn within(self, bounds: Self) -> Self {
        self.join(bounds, |tokens, most| tokens.filter(|_| tokens <= most))
    }

    /// Keeps the members beyond `bounds`.
    #[must_use]
    pub fn beyond(self, bounds: Self) -> Self {
        self.join(bounds, |tokens, most| tokens.filter(|_| tokens > most))
    }

    /// Joins two reports, member by member. The only list of the members besides the readers'.
    fn join(self, other: Self, join: impl Fn(Option<u64>, Option<u64>) -> Option<u64>) -> Self {
        Self {
            prompt: join(self.prompt, other.prompt),
            cached: join(self.cached, other.cached),
            completion: join(self.completion, other.completion),
            reasoning: join(self.reasoning, other.reasoning),
            total: join(self.total, other.total),
        }
    }
}

impl AnswerUsage {
    /// Writes the `usage` that clients read. `cost` is the billed amount, left out while unknown.
    pub(super) fn write(&self, cost: Option<NanoUsd>, out: &mut BytesMut) {
        let Usage { prompt, cached, completion, .. } = self.tokens;
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

/// The largest number of tokens among these.
fn largest<const N: usize>(values: [Option<&RawValue>; N]) -> Option<u64> {
    values.into_iter().filter_map(count).max()
}

/// Returns the tokens of a prompt. No template renders an empty prompt: a server that reports zero has not counted.
fn counted_prompt(tokens: Option<u64>) -> Option<u64> {
    tokens.filter(|tokens| *tokens > 0)
}

/// Reads a number of tokens: an integer, also spelled as a float or as a text.
fn count(value: Option<&RawValue>) -> Option<u64> {
    let spelled = value?.get();
    let spelled = spelled.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(spelled);
    match spelled.parse::<u64>() {
        Ok(tokens) => Some(tokens.min(MOST_TOKENS)),
        Err(e) if *e.kind() == IntErrorKind::PosOverflow => Some(MOST_TOKENS),
        Err(_) => integral(spelled.parse().ok()?),
    }
}

/// Returns the number of tokens of an integral float.
fn integral(tokens: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative and without a fraction; a larger one than any integer becomes the largest"
    )]
    let integer = tokens as u64;
    // The remainder of a non-finite number is no number either.
    (tokens >= 0.0 && tokens % 1.0 == 0.0).then(|| integer.min(MOST_TOKENS))
}

fn details(value: Option<&RawValue>) -> RawDetails<'_> {
    value.and_then(|value| serde_json::from_str(value.get()).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(usage: &str) -> Reported {
        Reported::read(serde_json::from_str(usage).unwrap())
    }

    fn reported(prompt: u64, cached: Option<u64>, completion: u64) -> Reported {
        Reported { prompt: Some(prompt), cached, completion: Some(completion), ..Reported::default() }
    }

    #[test]
    fn usage_is_read_from_every_shape() {
        for (members, cached, reasoning) in [
            ("", None, None),
            (r#","total_tokens":null,"unknown":[{}]"#, None, None),
            (r#","prompt_tokens_details":{"cached_tokens":8}"#, Some(8), None),
            (r#","prompt_tokens_details":null"#, None, None),
            (r#","prompt_tokens_details":{"cached_tokens":null}"#, None, None),
            (r#","prompt_tokens_details":{"cached_tokens":-1}"#, None, None),
            (r#","prompt_tokens_details":7"#, None, None),
            (r#","reasoning_tokens":3"#, None, Some(3)),
            (r#","completion_tokens_details":{"reasoning_tokens":4}"#, None, Some(4)),
            (r#","prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":4"#, Some(8), None),
            (r#","cached_tokens":8"#, Some(8), None),
            (
                r#","input_tokens_details":{"cached_tokens":8},"output_tokens_details":{"reasoning_tokens":2}"#,
                Some(8),
                Some(2),
            ),
        ] {
            let expected = Reported { reasoning, ..reported(12, cached, 5) };
            let usage = format!(r#"{{"prompt_tokens":12,"completion_tokens":5{members}}}"#);
            assert_eq!(read(&usage), expected, "{usage}");
            let usage = format!(r#"{{"input_tokens":12,"output_tokens":5{members}}}"#);
            assert_eq!(read(&usage), expected, "{usage}");
        }
        assert_eq!(read(r#"{"total_tokens":17}"#), Reported { total: Some(17), ..Reported::default() });
        let both = r#"{"prompt_tokens":0,"completion_tokens":0,"input_tokens":12,"output_tokens":5}"#;
        assert_eq!(read(both), reported(12, None, 5), "the names that the server does not fill");
    }

    #[test]
    fn a_prompt_of_no_tokens_was_not_counted() {
        let completion = Reported { completion: Some(5), ..Reported::default() };
        for prompt in ["0", "0.0", "\"0\"", "-0.0"] {
            let usage = format!(r#"{{"prompt_tokens":{prompt},"completion_tokens":5}}"#);
            assert_eq!(read(&usage), completion, "{usage}");
        }
    }

    #[test]
    fn integral_floats_and_numeric_texts_are_numbers() {
        for twelve in ["12", "12.0", "1.2e1", "120e-1", "\"12\"", "\"12.0\""] {
            let usage = format!(r#"{{"prompt_tokens":{twelve},"completion_tokens":{twelve}}}"#);
            assert_eq!(read(&usage), reported(12, None, 12), "{usage}");
        }
    }

    #[test]
    fn a_member_that_is_no_number_of_tokens_is_as_good_as_absent() {
        for wrong in [
            "-1",
            "1.5",
            "-1.0",
            "1e400",
            "\"twelve\"",
            "\"nan\"",
            "\"inf\"",
            "\"\"",
            "null",
            "[]",
            "{}",
            "true",
        ] {
            let (five, none) = (Some(5), Reported::default());
            let usage = format!(r#"{{"prompt_tokens":{wrong},"completion_tokens":5}}"#);
            assert_eq!(read(&usage), Reported { completion: five, ..none }, "{usage}");
            let usage = format!(r#"{{"prompt_tokens":5,"completion_tokens":{wrong}}}"#);
            assert_eq!(read(&usage), Reported { prompt: five, ..none }, "{usage}");
        }
        for no_usage in ["{}", "[]", "7", "\"x\"", "null"] {
            assert_eq!(read(no_usage), Reported::default(), "{no_usage}");
        }
    }

    #[test]
    fn a_number_beyond_all_bounds_stays_beyond_them() {
        for tokens in ["9223372036854775807", "99999999999999999999", "1e30", "\"1e300\""] {
            let usage = format!(r#"{{"prompt_tokens":5,"completion_tokens":{tokens}}}"#);
            assert_eq!(read(&usage), reported(5, None, MOST_TOKENS), "{tokens}");
        }
    }

    #[test]
    fn timings_contain_what_a_choice_has_used_so_far() {
        let read = |timings: &str| Reported::read_timings(serde_json::from_str(timings).unwrap());
        let timings =
            r#"{"cache_n":236,"prompt_n":1,"prompt_ms":30.958,"predicted_n":35,"predicted_ms":661.064}"#;
        assert_eq!(read(timings), reported(237, Some(236), 35));
        assert_eq!(read(r#"{"prompt_n":9,"predicted_n":1}"#), reported(9, None, 1));
        assert_eq!(read(r#"{"cache_n":0,"prompt_n":0,"predicted_n":0}"#).prompt, None);
        assert_eq!(read(r#"{"prompt_n":-1,"predicted_n":1}"#).completion, Some(1));
        for none in ["{}", "[]"] {
            assert_eq!(read(none), Reported::default(), "{none}");
        }
    }

    #[test]
    fn usage_is_found_at_the_end_of_a_body() {
        let end = br#""}],"usage" : {"prompt_tokens":12,"completion_tokens":60000}, "id": "x"}"#;
        assert_eq!(Reported::find_last(end), reported(12, None, 60_000));
        assert_eq!(Reported::find_last(br#"{"usage": {"prompt_tok"#), Reported::default());
        assert_eq!(Reported::find_last(b"{}"), Reported::default());
    }

    #[test]
    fn usage_is_written_with_its_cost_to_the_last_nano_usd() {
        let usage = AnswerUsage { tokens: Usage::of(12, 0, 5), reasoning: 0 };
        let mut out = BytesMut::new();
        usage.write(Some(NanoUsd::from_nanos(3200)), &mut out);
        assert_eq!(
            out,
            r#"{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0},"cost":0.0000032}"#
        );
        out.clear();
        usage.write(None, &mut out);
        assert!(out.ends_with(br#""completion_tokens_details":{"reasoning_tokens":0}}"#));
    }
}
