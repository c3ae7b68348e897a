//! Words about refused requests.

use maud::{Markup, html};

use key_service_management::books::{REFUSED_DAYS, RefusedKey, RefusedLately};
use key_service_page::{
    paths::{GROUPS, KEYS},
    show::{count, or_unnamed, requests},
};

/// Says how many requests of a key were refused lately and why; nothing where none was.
pub(super) fn notice(refused: &RefusedLately) -> Markup {
    html! {
        @if let Some(all) = sum(&refused.today) { p.note { (today(all)) (reasons(&refused.today, false)) "." } }
        (before(refused))
    }
}

/// Says how many requests of an account were refused lately and why, with links to what can be done, and of which keys.
pub(super) fn notice_of_account(refused: &RefusedLately, keys: &[RefusedKey]) -> Markup {
    html! {
        @if let Some(all) = sum(&refused.today) {
            div.note {
                p { (today(all)) (reasons(&refused.today, true)) "." }
                ul {
                    @for RefusedKey { key, count: some, reasons: why } in keys {
                        li { a href={ (KEYS) "/" (key.id.to_string()) } { (or_unnamed(&key.label)) } ": " (count(*some)) " refused, " (reasons(why, false)) }
                    }
                }
            }
        }
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

/// The number of all requests, unless there is none.
fn sum(counts: &[(String, u64)]) -> Option<u64> {
    Some(counts.iter().map(|(_, count)| count).sum()).filter(|all| *all > 0)
}

/// The reasons, each with its number where there are several.
fn reasons(counts: &[(String, u64)], with_links: bool) -> Markup {
    html! {
        @for (n, (reason, some)) in counts.iter().enumerate() {
            @if n > 0 { ", " }
            @if counts.len() > 1 { (count(*some)) " " }
            @match page_of(reason).filter(|_| with_links) {
                Some(page) => a href=(page) { (words(reason)) },
                None => (words(reason)),
            }
        }
    }
}

/// Page that shows what an error code is about, if there is one.
fn page_of(reason: &str) -> Option<&'static str> {
    match reason {
        "key_limit_reached" | "group_limit_reached" => Some("/dashboard/keys?status=limit_reached"),
        "insufficient_credits" => Some("/dashboard/credit"),
        "invalid_api_key" => Some("/dashboard/keys?status=revoked"),
        "key_disabled" => Some("/dashboard/keys?status=disabled"),
        "key_expired" => Some("/dashboard/keys?status=expired"),
        "group_archived" => Some(GROUPS),
        _ => None,
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
        "key_disabled" => "key disabled",
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
    use domain::key::ApiKey;
    use shared::{ids::KeyId, time::Timestamp};

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

    #[test]
    fn the_notice_of_an_account_names_the_keys_and_leads_to_what_can_be_done() {
        let at = Timestamp::from_millis(0);
        let mut key = ApiKey::new(KeyId::new(at, [1; 10]), String::new(), at);
        key.label = "intern".into();
        let counts = vec![("key_limit_reached".to_owned(), 17), ("rate_limit_exceeded".to_owned(), 2)];
        let refused = RefusedLately { today: counts.clone(), before: Vec::new() };
        let id = key.id;
        let said =
            notice_of_account(&refused, &[RefusedKey { key, count: 19, reasons: counts }]).into_string();
        assert!(
            said.contains(
                "17 <a href=\"/dashboard/keys?status=limit_reached\">limit reached</a>, 2 rate limit reached."
            ),
            "{said}"
        );
        assert!(
            said.contains(&format!("<a href=\"/dashboard/keys/{id}\">")) && said.contains("intern"),
            "{said}"
        );
        assert!(said.contains(": 19 refused, 17 limit reached, 2 rate limit reached</li>"), "{said}");
    }
}
