//! Tells how many requests were refused, and why.

use maud::{Markup, html};

use key_service_management::books::{REFUSED_DAYS, RefusedLately};
use key_service_page::{
    paths::{ACTIVITY, GROUPS},
    show::{count, requests},
};

/// Says how many requests were refused lately and why; nothing if none was. The reasons of an account, unlike those of
/// a key, lead to the requests.
pub(super) fn notice(refused: &RefusedLately, of_account: bool) -> Markup {
    html! {
        @if let Some(all) = sum(&refused.today) { p.note { (today(all)) (reasons(&refused.today, of_account)) "." } }
        (before(refused))
    }
}

fn today(all: u64) -> Markup {
    html! { (requests(all)) @if all == 1 { " was" } @else { " were" } " refused today (UTC): " }
}

fn before(refused: &RefusedLately) -> Markup {
    html! {
        @if let Some(all) = sum(&refused.before) {
            p.quiet { "Refused in the " (REFUSED_DAYS) " days before: " (requests(all)) ", " (reasons(&refused.before, false)) "." }
        }
    }
}

/// Returns the number of all requests; `None` if it is zero.
fn sum(counts: &[(String, u64)]) -> Option<u64> {
    Some(counts.iter().map(|(_, count)| count).sum()).filter(|all| *all > 0)
}

/// Lists the reasons, each with its number if there are several.
fn reasons(counts: &[(String, u64)], with_links: bool) -> Markup {
    html! {
        @for (n, (reason, some)) in counts.iter().enumerate() {
            @if n > 0 { ", " }
            @if counts.len() > 1 { (count(*some)) " " }
            @if with_links { a href={ (ACTIVITY) "?reason=" (reason) } { (words(reason)) } }
            @else { (words(reason)) }
        }
    }
}

/// Reasons of refusals by which requests can be filtered, each with its words.
pub(super) const REASONS: [(&str, &str); 10] = [
    ("key_limit_reached", "limit reached"),
    ("group_limit_reached", "limit of the group reached"),
    ("insufficient_credits", "credit used up"),
    ("spend_reserved", "the rest was held by other requests"),
    ("invalid_api_key", "key revoked"),
    ("key_disabled", "key disabled"),
    ("key_expired", "key expired"),
    ("group_archived", "group archived"),
    ("model_not_allowed", "model not allowed"),
    ("rate_limit_exceeded", "rate limit reached"),
];

/// Writes the words of a reason, as a link to what can be done. `key` is the page of the key.
pub(super) fn reason(reason: &str, key: &str) -> Markup {
    let page = match reason {
        "insufficient_credits" => "/dashboard/credit",
        "group_archived" => GROUPS,
        _ => key,
    };
    html! { a href=(page) { (words(reason)) } }
}

/// Words for an error code of the public API.
fn words(reason: &str) -> &str {
    REASONS.iter().find(|(code, _)| *code == reason).map_or(reason, |(_, words)| words)
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
            notice(&RefusedLately { today: of(today), before: Vec::new() }, false).into_string()
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
        let before = notice(&RefusedLately { today: Vec::new(), before: of(&before) }, false).into_string();
        assert_eq!(before, "<p class=\"quiet\">Refused in the 7 days before: 3 requests, key expired.</p>");
    }

    #[test]
    fn the_notice_of_an_account_leads_to_the_requests() {
        let counts = vec![("key_limit_reached".to_owned(), 17), ("rate_limit_exceeded".to_owned(), 2)];
        let said = notice(&RefusedLately { today: counts, before: Vec::new() }, true).into_string();
        let link = "17 <a href=\"/dashboard/activity?reason=key_limit_reached\">limit reached</a>, 2 <a ";
        assert!(said.contains(link), "{said}");
    }
}
