//! The first part of the page: what is wrong right now, with a way to the cure in each line.

use maud::{Markup, html};
use shared::time::Timestamp;

use crate::{api_keys::keys::within, refused};
use domain::{
    key::{ApiKey, Status},
    ledger::Holder,
};
use key_service_management::{
    reached::MoneyLimit,
    trouble::{Trouble, TroubledKey},
};
use key_service_page::{
    paths::{ACTIVITY, KEYS},
    session::Viewer,
    show::{count, or_unnamed, time},
};
use key_service_settings::budget::{may_raise, raise_today, reached_badge, tightest};

/// Most keys listed for each trouble. The heading counts all of them.
const NAMED: usize = 5;

/// Says what is wrong; nothing if all is well.
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
                h2 #trouble { "Needs a look" }
                (keys(&part(limited, "cannot spend", &RAISE), &reached, &raise_first))
                (keys(&part(ended, "refused, and still in use", &SEE), &|troubled| ended_since(&troubled.key, now), &nothing))
                (keys(&part(nearly, "close to a limit", &RAISE), &bar, &raise_nearly))
                (keys(&part(expiring, "about to expire", &EXTEND), &expires, &nothing))
                p.under { a href={ (KEYS) "?status=trouble" @if let Some(group) = group { "&group=" (group.to_string()) } } { "All keys in trouble" } }
            }
        }
        (refused::notice(refused, true))
    }
}

fn nothing(_: &TroubledKey) -> Markup {
    html! {}
}

/// Makes a link that raises a limit for the rest of the day, for those who may.
fn raise(viewer: &Viewer, limit: Option<(Holder, MoneyLimit)>) -> Markup {
    let raised = limit.filter(|(holder, _)| may_raise(viewer, *holder));
    html! { @if let Some((holder, limit)) = raised { (raise_today(holder, &limit)) } }
}

/// What helps a key in trouble.
struct Cure {
    title: &'static str,
    /// Part of the key's page where it is done, as the end of its address.
    tab: &'static str,
}

const RAISE: Cure = Cure { title: "Raise the limit", tab: "/settings" };
const SEE: Cure = Cure { title: "See the key", tab: "" };
const EXTEND: Cure = Cure { title: "Extend", tab: "/settings" };

/// Keys with the same trouble.
struct TroublePart<'a> {
    keys: &'a [TroubledKey],
    /// What they have in common, as the end of a sentence.
    what: &'a str,
    cure: &'a Cure,
    /// There are no others.
    has_all: bool,
}

impl TroublePart<'_> {
    /// Says how many there are; `45+` if there may be more.
    fn heading(&self) -> String {
        let (number, more) = (self.keys.len() as u64, if self.has_all { "" } else { "+" });
        let noun = if number == 1 && self.has_all { "key" } else { "keys" };
        let verb = match self.what {
            "cannot spend" => "",
            _ if noun == "key" => "is ",
            _ => "are ",
        };
        format!("{}{more} {noun} {verb}{}", count(number), self.what)
    }
}

/// Lists the keys with the same trouble, each with a link to its cure. `detail` says what is wrong with a key, and `way`
/// makes a further link.
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

/// Says why a key no longer works.
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
        assert_eq!(says(1, "cannot spend", true), "1 key cannot spend");
        assert_eq!(says(45, "cannot spend", true), "45 keys cannot spend");
        assert_eq!(says(1, "close to a limit", true), "1 key is close to a limit");
        assert_eq!(says(30, "close to a limit", false), "30+ keys are close to a limit");
        assert_eq!(says(1, "refused, and still in use", false), "1+ keys are refused, and still in use");
    }
}
