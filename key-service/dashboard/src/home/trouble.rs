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
    let Trouble { limited, ended, nearly, expiring, refused, limits } = trouble;
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
    let has_keys = [limited, ended, nearly, expiring].into_iter().any(|keys| !keys.is_empty());
    html! {
        @if has_keys {
            section.card.trouble aria-labelledby="trouble" {
                h2 #trouble { "Needs a look" }
                (keys(limited, "cannot spend", &RAISE, &reached, &raise_first))
                (keys(ended, "refused, and still in use", &SEE, &|troubled| ended_since(&troubled.key, now), &nothing))
                (keys(nearly, "close to a limit", &RAISE, &bar, &raise_nearly))
                (keys(expiring, "about to expire", &EXTEND, &expires, &nothing))
                p.under { a href={ (KEYS) "?status=trouble" } { "All keys in trouble" } }
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

/// Lists the keys with the same trouble, each with a link to its cure. `detail` says what is wrong with a key, and `way`
/// makes a further link.
fn keys(
    troubled: &[TroubledKey],
    what: &str,
    cure: &Cure,
    detail: &dyn Fn(&TroubledKey) -> Markup,
    way: &dyn Fn(&TroubledKey) -> Markup,
) -> Markup {
    let words = match troubled.len() {
        0 => return html! {},
        1 => format!("1 key is {what}").replace("is cannot", "cannot"),
        some => format!("{some} keys are {what}").replace("are cannot", "cannot"),
    };
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
