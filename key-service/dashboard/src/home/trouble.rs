//! Keys that need attention right now, each with links to fix it.

use maud::{Markup, html};
use shared::time::Timestamp;

use crate::{api_keys::keys::within, refused};
use domain::{
    alarm::{Alarm, AlarmCounts},
    key::{ApiKey, Status},
    ledger::Holder,
};
use key_service_management::{
    limits::MoneyLimit,
    members::MutedAlarms,
    trouble::{Trouble, TroubledKey},
};
use key_service_page::{
    layout::hidden,
    paths::{ACTIVITY, KEYS},
    session::Viewer,
    show::{count, or_unnamed, requests, time},
};
use key_service_settings::budget::{may_raise, raise_today, reached_badge, tightest};

/// Paths that mute the alarms of the first page, and show them again.
pub(crate) const MUTE: &str = "/dashboard/alarms/mute";
pub(crate) const UNMUTE: &str = "/dashboard/alarms/unmute";

/// Number of keys listed under each heading. The heading counts all keys that were found.
const NAMED: usize = 5;

/// Maximum number of keys and webhooks for which the strip is shown expanded.
const FEW: u64 = 6;

/// What the account's alarms show in addition to its keys.
pub(crate) struct AccountAlarms {
    /// A sentence for each webhook that was disabled because deliveries failed.
    pub(crate) webhooks: Vec<Markup>,
    /// Alarms that the member has muted.
    pub(crate) muted: Option<MutedAlarms>,
}

/// Shows an expandable line of alarms, or nothing if all is well.
pub(crate) fn strip(
    viewer: &Viewer,
    trouble: &Trouble,
    now: Timestamp,
    of_account: Option<&AccountAlarms>,
) -> Markup {
    let all = counts(trouble, of_account);
    let muted = of_account.and_then(|of| of.muted.as_ref());
    let shown = muted.map_or_else(|| all.clone(), |muted| all.without(&muted.counts));
    let few = shown.iter().filter(|(alarm, _)| *alarm != Alarm::Refused).map(|(_, count)| count).sum::<u64>();
    html! {
        @if !shown.is_empty() {
            section.card.trouble.alarms aria-labelledby="trouble" {
                details open[few <= FEW] {
                    summary {
                        h2 #trouble { "Needs attention" }
                        @for (alarm, count) in shown.iter() {
                            span.alarm.mild[is_mild(alarm)] { (in_short(alarm, count, trouble.has_all)) }
                        }
                    }
                    (details(viewer, trouble, now, &shown))
                    @if let Some(of_account) = of_account.filter(|_| shown.has(Alarm::WebhookOff)) {
                        @for sentence in &of_account.webhooks { p.problem { (sentence) } }
                    }
                    @if shown.has(Alarm::Refused) { (refused::notice(&trouble.refused, true)) }
                }
                @if of_account.is_some() {
                    form method="post" action=(MUTE) {
                        (hidden(viewer))
                        input type="hidden" name="alarms" value=(shown.to_string());
                        button.link { "Mute for a week" }
                    }
                }
            }
        } @else if let Some(muted) = muted.filter(|_| !all.is_empty()) {
            form.muted method="post" action=(UNMUTE) {
                (hidden(viewer))
                p.quiet { "Alarms are muted until " (time(muted.until)) ". " button.link { "Show them" } }
            }
        }
    }
}

fn counts(trouble: &Trouble, of_account: Option<&AccountAlarms>) -> AlarmCounts {
    let refused = trouble.refused.today.iter().map(|(_, count)| count).sum();
    AlarmCounts::new([
        (Alarm::OutOfBudget, trouble.limited.len() as u64),
        (Alarm::StillCalled, trouble.ended.len() as u64),
        (Alarm::WebhookOff, of_account.map_or(0, |of| of.webhooks.len() as u64)),
        (Alarm::NearLimit, trouble.nearly.len() as u64),
        (Alarm::ExpiresSoon, trouble.expiring.len() as u64),
        (Alarm::Refused, refused),
    ])
}

/// Returns whether requests still go through despite this alarm.
const fn is_mild(alarm: Alarm) -> bool {
    match alarm {
        Alarm::OutOfBudget | Alarm::StillCalled | Alarm::WebhookOff => false,
        Alarm::NearLimit | Alarm::ExpiresSoon | Alarm::Refused => true,
    }
}

/// Summarises an alarm in a few words, with `+` if there may be more keys.
fn in_short(alarm: Alarm, number: u64, has_all: bool) -> String {
    let more = if has_all { "" } else { "+" };
    let plural =
        |one: &str, many: &str| if number == 1 && has_all { one.to_owned() } else { many.to_owned() };
    let of_keys = |one: &str, many: &str| format!("{}{more} {}", count(number), plural(one, many));
    match alarm {
        Alarm::OutOfBudget => of_keys("key out of budget", "keys out of budget"),
        Alarm::StillCalled => of_keys("inactive key still being called", "inactive keys still being called"),
        Alarm::NearLimit => of_keys("key close to a limit", "keys close to a limit"),
        Alarm::ExpiresSoon => of_keys("key expires within a week", "keys expire within a week"),
        Alarm::WebhookOff => {
            format!("{} {} off", count(number), if number == 1 { "webhook" } else { "webhooks" })
        }
        Alarm::Refused => format!("{} refused today", requests(number)),
    }
}

/// Lists the keys of the shown alarms.
fn details(viewer: &Viewer, trouble: &Trouble, now: Timestamp, shown: &AlarmCounts) -> Markup {
    let Trouble { limited, ended, nearly, expiring, refused: _, limits, has_all, group } = trouble;
    let reached = |TroubledKey { key, .. }: &TroubledKey| {
        // If a group's limit is the reason, that limit is shown.
        let own = limits.limits(Holder::Key(key.id, None), &key.spend.budget);
        let shown = limits.first_reached(key).map_or(own, |(_, limit)| vec![limit]);
        html! { (tightest(&shown)) @if let Some(of) = trouble.limits.of_key(key) { " " (reached_badge(Some(of))) } }
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
    let of = |alarm, keys| if shown.has(alarm) { keys } else { &[][..] };
    let part = |keys, what, cure| {
        // Members who may not change a key's settings get a link that only shows the key.
        let cure = if viewer.keeps_keys() { cure } else { &SEE };
        TroublePart { keys, what, cure, has_all: *has_all }
    };
    let limited = part(of(Alarm::OutOfBudget, limited.as_slice()), "out of budget", &RAISE);
    let ended = part(of(Alarm::StillCalled, ended), "inactive and still being called", &SEE);
    let nearly = part(of(Alarm::NearLimit, nearly), "close to a limit", &RAISE);
    let expiring = part(of(Alarm::ExpiresSoon, expiring), "about to expire", &EXTEND);
    let has_keys = shown.iter().any(|(alarm, _)| !matches!(alarm, Alarm::WebhookOff | Alarm::Refused));
    let ended_since = |troubled: &TroubledKey| ended_since(&troubled.key, now);
    html! {
        (keys(&limited, &reached, &raise_first))
        (keys(&ended, &ended_since, &nothing))
        (keys(&nearly, &bar, &raise_nearly))
        (keys(&expiring, &expires, &nothing))
        @if has_keys {
            p.under { a href={ (KEYS) "?status=trouble" @if let Some(group) = group { "&group=" (group.to_string()) } } { "All keys that need attention" } }
        }
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
    /// Suffix of the key's path, which selects the tab that the link opens.
    tab: &'static str,
}

const RAISE: Cure = Cure { title: "Raise the limit", tab: "/settings" };
const SEE: Cure = Cure { title: "View key", tab: "" };
const EXTEND: Cure = Cure { title: "Extend", tab: "/settings" };

/// Keys with the same trouble.
struct TroublePart<'a> {
    keys: &'a [TroubledKey],
    /// What the keys have in common; completes "5 keys are …".
    what: &'a str,
    cure: &'a Cure,
    /// Whether there are no other keys with this trouble.
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

/// Lists keys with the same trouble, each with a link that helps. `detail` describes what is wrong with a key, and
/// `way` adds another link.
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

/// Explains why and since when a key no longer works.
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
    fn an_alarm_is_said_in_a_few_words() {
        assert_eq!(in_short(Alarm::OutOfBudget, 50, true), "50 keys out of budget");
        assert_eq!(in_short(Alarm::OutOfBudget, 30, false), "30+ keys out of budget");
        assert_eq!(in_short(Alarm::StillCalled, 1, true), "1 inactive key still being called");
        assert_eq!(in_short(Alarm::StillCalled, 1, false), "1+ inactive keys still being called");
        assert_eq!(in_short(Alarm::WebhookOff, 2, false), "2 webhooks off");
        assert_eq!(in_short(Alarm::Refused, 1, true), "1 request refused today");
    }

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
