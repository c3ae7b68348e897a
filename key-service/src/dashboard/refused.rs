//! Words about refused requests.

use maud::{Markup, html};

use super::show::{count, requests};
use crate::management::books::{REFUSED_DAYS, RefusedLately};

/// Says how many requests were refused lately and why; nothing where none was.
pub(super) fn notice(refused: &RefusedLately) -> Markup {
    html! {
        @if let Some(all) = sum(&refused.today) {
            p.note { (requests(all)) @if all == 1 { " was" } @else { " were" } " refused today (UTC): " (reasons(&refused.today)) }
        }
        @if let Some(all) = sum(&refused.before) {
            p.quiet { "Refused in the " (REFUSED_DAYS) " days before: " (requests(all)) ", " (reasons(&refused.before)) }
        }
    }
}

/// The number of all requests, unless there is none.
fn sum(counts: &[(String, u64)]) -> Option<u64> {
    Some(counts.iter().map(|(_, count)| count).sum()).filter(|all| *all > 0)
}

/// The reasons, each with its number where there are several.
fn reasons(counts: &[(String, u64)]) -> Markup {
    html! {
        @match counts {
            [(reason, _)] => (words(reason)),
            several => @for (n, (reason, some)) in several.iter().enumerate() {
                @if n > 0 { ", " } (count(*some)) " " (words(reason))
            },
        }
        "."
    }
}

/// Words for an error code of the public API.
fn words(reason: &str) -> &str {
    match reason {
        "key_limit_reached" => "limit reached",
        "group_limit_reached" => "limit of the group reached",
        "insufficient_credits" => "credit used up",
        "spend_reserved" => "the rest was held by other requests",
        "invalid_api_key" => "key revoked",
        "key_expired" => "key expired",
        "group_archived" => "group archived",
        "model_not_allowed" => "model not allowed",
        "rate_limit_exceeded" => "rate limit reached",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_says_how_many_and_why() {
        let of = |counts: &[(&str, u64)]| {
            counts.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect::<Vec<_>>()
        };
        let said = |today: &[(&str, u64)]| {
            notice(&RefusedLately { today: of(today), before: Vec::new() }).into_string()
        };
        assert_eq!(said(&[]), "");
        assert!(
            said(&[("key_limit_reached", 412)])
                .contains("412 requests were refused today (UTC): limit reached.<")
        );
        let several = said(&[("rate_limit_exceeded", 1_000), ("key_expired", 1)]);
        assert!(
            several.contains(
                "1,001 requests were refused today (UTC): 1,000 rate limit reached, 1 key expired.<"
            )
        );
        let before = vec![("key_expired", 3)];
        let before = notice(&RefusedLately { today: Vec::new(), before: of(&before) }).into_string();
        assert_eq!(before, "<p class=\"quiet\">Refused in the 7 days before: 3 requests, key expired.</p>");
    }
}
