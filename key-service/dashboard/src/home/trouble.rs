//! Keys that need attention right now, each with links to fix it.

use maud::{Markup, html};
use shared::time::Timestamp;

use crate::{api_keys::keys::within, refused};
use domain::{
    key::{ApiKey, Status},
    ledger::Holder,
};
use key_service_management::{
    limits::MoneyLimit,
    trouble::{Trouble, TroubledKey},
};
use key_service_page::{
    paths::{ACTIVITY, KEYS},
    session::Viewer,
    show::{count, or_unnamed, time},
};
use key_service_settings::budget::{may_raise, raise_today, reached_badge, tightest};

/// Keys listed under each heading. The heading counts all that were found.
const NAMED: usize = 5;

/// Shows what needs attention, or nothing if all is well.
pub(crate) fn strip(viewer: &Viewer, trouble: &Trouble, now: Timestamp) -> Markup {
    let Trouble { limited, ended, nearly, expiring, refused, limits, has_all, group } = trouble;
    let reached = |TroubledKey { key, .. }: &TroubledKey| {
        let limits = limits.limits(Holder::Key(key.id, None), &key.spend.budget);
        html! { (tightest(&limits)) @if let Some(of) = trouble.limits.of_key(key) { " " (reached_badge(Some(of))) } }
    };
    let bar = |TroubledKey { key, .. }: &TroubledKey| {
        tightest(&limits.limits(Holder::Key(key.id, None), &key.spend.budget))
    };
    let raise_first = |TroubledKey { key, .. }: &TroubledKey| raise(viewer, limits.first_reached(key));
    let raise_nearly = |TroubledKey { key, .. }: &TroubledKey| {
        let holder = Holder::Key(key.id, None);
        let own = limits.limits(holder, &key.spend.budget);
        raise(viewer, own.into_iter().find(MoneyLimit::is_nearly_used).map(|limit| (holder, limit)))
    };
    let expires = |TroubledKey { key, .. }: &TroubledKey| {
        html! { @if let Some(at) = key.spend.expires_at { "expires " (within(at, now)) } }
    };
    let part = |keys, what, cure| TroublePart { keys, what, cure, has_all: *has_all };
    let has_keys = [limited, ended, nearly, expiring].into_iter().any(|keys| !keys.is_empty());
    html! {
        @if has_keys {
            section.card.trouble aria-labelledby="trouble" {
                h2 #trouble { "Needs attention" }
                (keys(&part(limited, "out of budget", &RAISE), &reached, &raise_first))
                (keys(&part(ended, "inactive and still being called", &SEE), &|troubled| ended_since(&troubled.key, now), &nothing))
                (keys(&part(nearly, "close to a limit", &RAISE), &bar, &raise_nearly))
                (keys(&part(expiring, "about to expire", &EXTEND), &expires, &nothing))
                p.under { a href={ (KEYS) "?status=trouble" @if let Some(group) = group { "&group=" (group.to_string()) } } { "All keys that need attention" } }
            }
        }
        (refused::notice(refused, true))
    }
}

fn nothing(_: &TroubledKey) -> Markup {
    html! {}
}

/// Links to a raise of a limit for the rest of the day, if the member may raise it.
fn raise(viewer: &Viewer, limit: Option<(Holder, MoneyLimit)>) -> Markup {
    let raised = limit.filter(|(holder, _)| may_raise(viewer, *holder));
    html! { @if let Some((holder, limit)) = raised { (raise_today(holder, &limit)) } }
}

/// A link that helps with a key's trouble.
struct Cure {
    title: &'static str,
    /// Suffix of the key's path: the tab that the link opens.
    tab: &'static str,
}

const RAISE: Cure = Cure { title: "Raise the limit", tab: "/settings" };
const SEE: Cure = Cure { title: "View key", tab: "" };
const EXTEND: Cure = Cure { title: "Extend", tab: "/settings" };

/// Keys with the same trouble.
struct TroublePart<'a> {
    keys: &'a [TroubledKey],
    /// What they have in common; completes "5 keys are …".
    what: &'a str,
    cure: &'a Cure,
    /// Whether these are all such keys.
    has_all: bool,
}

impl TroublePart<'_> {
    /// Counts the keys, as `45+` if there may be more.
    fn heading(&self) -> String {
        let (number, more) = (self.keys.len() as u64, if self.has_all { "" } else { "+" });
        let keys_are = if number == 1 && self.has_all { "key is" } else { "keys are" };
        format!("{}{more} {keys_are} {}", count(number), self.what)
    }
}

/// Lists keys with the same trouble, each with a link to its cure. `detail` says what is wrong with a key, and `way` adds
/// another link.
fn keys(
    part: &TroublePart<'_>,
    detail: &dyn Fn(&TroubledKey) -> Markup,
    way: &dyn Fn(&TroubledKey) -> Markup,
) -> Markup {
    let TroublePart { keys: troubled, cure, .. } = part;
    if troubled.is_empty() {
        return html! {};
    }
    let words = part.heading();
    html! {
        h3 { (words) }
        ul {
            @for of in troubled.iter().take(NAMED) {
                @let page = format!("{KEYS}/{}", of.key.id);
                li {
                    a href=(page) { (or_unnamed(&of.key.label)) } " " span { (detail(of)) }
                    span.ways {
                        @if of.refused > 0 {
                            a href={ (ACTIVITY) "?outcome=refused&key=" (of.key.id.to_string()) } { (count(of.refused)) " refused today" }
                        }
                        (way(of))
                        a href={ (page) (cure.tab) } aria-label={ (cure.title) ": " (of.key.label) } { (cure.title) }
                    }
                }
            }
        }
    }
}

/// Says why and since when a key no longer works.
fn ended_since(key: &ApiKey, now: Timestamp) -> Markup {
    html! {
        @match key.status(now) {
            Status::Revoked => { "revoked" @if let Some(at) = key.spend.revoked_at { " " (time(at)) } },
            Status::Expired => { "expired" @if let Some(at) = key.spend.expires_at { " " (time(at)) } },
            Status::Disabled => { "disabled" },
            Status::Active => {},
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::ledger::histories::{START, key as key_id};

    use super::*;

    #[test]
    fn a_heading_says_whether_there_may_be_more() {
        let key = TroubledKey { key: ApiKey::new(key_id(1), String::new(), START), refused: 0 };
        let says = |number: usize, what, has_all| {
            let keys = vec![key.clone(); number];
            TroublePart { keys: &keys, what, cure: &SEE, has_all }.heading()
        };
        assert_eq!(says(1, "out of budget", true), "1 key is out of budget");
        assert_eq!(says(45, "out of budget", true), "45 keys are out of budget");
        assert_eq!(says(1, "close to a limit", true), "1 key is close to a limit");
        assert_eq!(says(30, "close to a limit", false), "30+ keys are close to a limit");
        assert_eq!(says(1, "about to expire", false), "1+ keys are about to expire");
    }
}
