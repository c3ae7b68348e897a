//! How many requests were refused, and why.

use maud::{Markup, html};

use key_service_management::books::{REFUSED_DAYS, RefusedLately};
use key_service_page::{
    paths::{ACTIVITY, GROUPS},
    show::{count, requests},
};

/// Shows how many requests were refused recently and why, or nothing if none were. On an account's page the reasons
/// link to the requests; on a key's page they do not.
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
            p.quiet { "Refused in the " (REFUSED_DAYS) " days before today: " (requests(all)) ", " (reasons(&refused.before, false)) "." }
        }
    }
}

/// Adds up the counts; `None` if there are no requests.
fn sum(counts: &[(String, u64)]) -> Option<u64> {
    Some(counts.iter().map(|(_, count)| count).sum()).filter(|all| *all > 0)
}

/// Lists the reasons, with numbers if there is more than one.
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

/// Reasons for a refusal that requests can be filtered by, each as shown on pages.
pub(super) const REASONS: [(&str, &str); 12] = [
    ("key_limit_reached", "limit reached"),
    ("group_limit_reached", "group limit reached"),
    ("insufficient_credits", "credit used up"),
    ("spend_reserved", "held by other requests"),
    ("invalid_api_key", "key revoked"),
    ("account_suspended", "account suspended"),
    ("account_closed", "account closed"),
    ("key_disabled", "key disabled"),
    ("key_expired", "key expired"),
    ("group_archived", "group archived"),
    ("model_not_allowed", "model not allowed"),
    ("rate_limit_exceeded", "rate limit reached"),
];

/// Shows a reason as a link to the page where its cause can be fixed. `key` is the path of the key's page.
pub(super) fn reason(reason: &str, key: &str) -> Markup {
    let page = match reason {
        "insufficient_credits" => "/dashboard/credit",
        "group_archived" => GROUPS,
        _ => key,
    };
    html! { a href=(page) { (words(reason)) } }
}

/// Explains an error code of the public API to someone who writes a client.
pub(super) fn explained(reason: &str) -> &'static str {
    match reason {
        "key_limit_reached" => {
            "The key's limit is used up. Raise it, or wait until resets_at if the error has one. Retrying does not help."
        }
        "group_limit_reached" => {
            "A limit of the key's group is used up. Raise it, or wait until resets_at if the error has one. Retrying does not help."
        }
        "insufficient_credits" => "The account is out of credit.",
        "spend_reserved" => {
            "Requests in flight hold what is left. Try again shortly; the SDKs do so by themselves."
        }
        "invalid_api_key" => "The key is unknown or was revoked.",
        "account_suspended" => "The account is suspended. Ask whoever runs this service.",
        "account_closed" => "The account is closed.",
        "key_disabled" => "The key is disabled. An owner can enable it in its settings.",
        "key_expired" => "The key has expired.",
        "group_archived" => "The key's group, or the group above it, is archived.",
        "model_not_allowed" => "The key or its group allows other models, which the error lists.",
        "rate_limit_exceeded" => "The key or its group is at a rate limit. Wait as long as Retry-After says.",
        _ => "",
    }
}

fn words(reason: &str) -> &str {
    REASONS.iter().find(|(code, _)| *code == reason).map_or(reason, |(_, words)| words)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn every_reason_is_explained() {
        for (code, _) in REASONS {
            assert!(!explained(code).is_empty(), "{code}");
        }
    }

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
        assert_eq!(
            before,
            "<p class=\"quiet\">Refused in the 7 days before today: 3 requests, key expired.</p>"
        );
    }

    #[test]
    fn the_notice_of_an_account_leads_to_the_requests() {
        let counts = vec![("key_limit_reached".to_owned(), 17), ("rate_limit_exceeded".to_owned(), 2)];
        let said = notice(&RefusedLately { today: counts, before: Vec::new() }, true).into_string();
        let link = "17 <a href=\"/dashboard/activity?reason=key_limit_reached\">limit reached</a>, 2 <a ";
        assert!(said.contains(link), "{said}");
    }
}
