//! Headers with the state of a key's rate limits, as in OpenAI's API.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};
use shared::rates::{RateLimit, RateStatus};

/// Headers for requests, then for tokens. Each group has the limit per minute, what remains of it, and the time until
/// the whole limit is available again.
pub(super) const NAMES: [&str; 6] = [
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
];

/// Adds the headers for the rate limits of the key or its groups.
pub(super) fn insert(rates: &RateStatus, headers: &mut HeaderMap) {
    for (names, rate) in NAMES.chunks_exact(3).zip([rates.requests, rates.tokens]) {
        let (&[of_limit, of_remaining, of_reset], Some(RateLimit { limit, remaining, reset })) =
            (names, rate)
        else {
            continue;
        };
        headers.insert(of_limit, limit.into());
        headers.insert(of_remaining, remaining.into());
        if let Ok(reset) = HeaderValue::try_from(duration(reset)) {
            headers.insert(of_reset, reset);
        }
    }
}

/// Writes a time as OpenAI does: `120ms`, `1s`, `8.64s`, `6m0s`, `1h0m0s`.
fn duration(time: Duration) -> String {
    let millis = time.as_millis();
    if millis > 0 && millis < 1_000 {
        return format!("{millis}ms");
    }
    let (hours, minutes) = (millis / 3_600_000, millis / 60_000 % 60);
    let (seconds, rest) = (millis / 1_000 % 60, millis % 1_000);
    let fraction = format!(".{rest:03}");
    let seconds = format!("{seconds}{}s", fraction.trim_end_matches('0').trim_end_matches('.'));
    match (hours, minutes) {
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_openai_writes_them() {
        for (millis, written) in [
            (0, "0s"),
            (1, "1ms"),
            (120, "120ms"),
            (1_000, "1s"),
            (8_640, "8.64s"),
            (10_050, "10.05s"),
            (60_000, "1m0s"),
            (360_000, "6m0s"),
            (61_500, "1m1.5s"),
            (3_600_000, "1h0m0s"),
            (7_384_001, "2h3m4.001s"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), written);
        }
    }

    #[test]
    fn rates_that_a_key_does_not_have_are_not_told() {
        let limit = RateLimit { limit: 50, remaining: 49, reset: Duration::from_millis(1_200) };
        let mut headers = HeaderMap::new();
        insert(&RateStatus::default(), &mut headers);
        assert!(headers.is_empty());
        insert(&RateStatus { requests: None, tokens: Some(limit) }, &mut headers);
        let told = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(told("x-ratelimit-limit-tokens").as_deref(), Some("50"));
        assert_eq!(told("x-ratelimit-remaining-tokens").as_deref(), Some("49"));
        assert_eq!(told("x-ratelimit-reset-tokens").as_deref(), Some("1.2s"));
        assert_eq!(headers.len(), 3);
    }
}
