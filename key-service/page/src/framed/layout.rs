//! The pages of the dashboard in their frame: navigation, the account, and who is signed in.

use axum::response::Response;
use maud::{Markup, Render, html};

use domain::access::{Effect, Subject};

pub use super::frame::hidden;
pub use crate::site::document::{bare, hinted, problem, reveals};
use crate::{
    framed::frame::Frame,
    shown::show::glance,
    site::paths::{ACTIVITY, GROUPS, HOME, KEYS, MANAGEMENT_KEYS, MARGIN, YOU},
    visitors::session::Viewer,
};

/// Address that finds anything of the account by a name, an id or a plaintext.
pub const FIND: &str = "/dashboard/find";

/// A part in the navigation, with its name and its address.
type ListedSection = (Section, &'static str, &'static str);

/// A part of the dashboard, as in the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Spend of the last days, and what needs attention.
    Overview,
    /// Keys that make model calls.
    Keys,
    /// Groups of keys, which share bounds.
    Groups,
    /// Keys that govern the account.
    ManagementKeys,
    /// Every request that was billed, and the last ones that were refused.
    Requests,
    /// Models on offer, with their prices.
    Models,
    /// Deposits, and a statement for each month.
    Credit,
    /// Charges beside what the upstreams charge, for owners.
    Margin,
    /// The people who sign in.
    Members,
    /// Acts that governed the account, and thresholds that were crossed.
    Events,
    Webhooks,
    /// A request sent from the browser.
    TryIt,
    /// A page that the navigation does not list: the member's own sign-in, and failures.
    Unlisted,
}

impl Section {
    /// The parts listed in the navigation, with addresses, below what they are for.
    const LISTED: [(&'static str, &'static [ListedSection]); 4] = [
        (
            "Use",
            &[
                (Self::Overview, "Overview", HOME),
                (Self::Requests, "Requests", ACTIVITY),
                (Self::Models, "Models", "/dashboard/models"),
                (Self::TryIt, "Try it", "/dashboard/try-it"),
            ],
        ),
        ("Keys", &[(Self::Keys, "API keys", KEYS), (Self::Groups, "Groups", GROUPS)]),
        ("Money", &[(Self::Credit, "Credit", "/dashboard/credit"), (Self::Margin, "Margin", MARGIN)]),
        (
            "Settings",
            &[
                (Self::Members, "Members", "/dashboard/members"),
                (Self::ManagementKeys, "Management keys", MANAGEMENT_KEYS),
                (Self::Webhooks, "Webhooks", "/dashboard/webhooks"),
                (Self::Events, "Events", "/dashboard/events"),
            ],
        ),
    ];

    /// Returns whether the navigation has the part for a member.
    fn is_seen_by(self, viewer: &Viewer) -> bool {
        match self {
            Self::Keys | Self::Groups | Self::Requests | Self::Models | Self::TryIt | Self::Events => {
                viewer.may(Effect::Read, Subject::Keys).is_ok()
            }
            Self::Overview | Self::Credit | Self::Members | Self::ManagementKeys | Self::Webhooks => {
                viewer.may(Effect::Read, Subject::Account).is_ok()
            }
            Self::Margin => viewer.is_owner(),
            Self::Unlisted => false,
        }
    }

    /// Returns whether the part is about a range of days, which its link then keeps.
    const fn has_range(self) -> bool {
        matches!(self, Self::Overview | Self::Requests | Self::Margin)
    }
}

/// Makes a page for a signed-in member. Its title is also its heading. A page below the one of its section leads back
/// to it, and the page after an act says what was done.
pub fn page(viewer: &Viewer, section: Section, title: &str, content: &Markup) -> Response {
    let listed =
        Section::LISTED.iter().flat_map(|(_, parts)| *parts).find(|(listed, _, _)| *listed == section);
    let above = listed.filter(|(_, name, _)| *name != title).map(|(_, name, path)| (*name, *path));
    let frame = Frame {
        home: HOME,
        name: &viewer.funds.name,
        balance: html! { @if viewer.may(Effect::Read, Subject::Account).is_ok() {
            p.balance.short[viewer.is_credit_short()] { span { (credit_title(viewer)) } strong { (glance(viewer.funds.credit)) } }
        } },
        finding: find(viewer),
        navigation: "Dashboard",
        links: links(viewer, section),
        person: name_and_rights(viewer),
        own: html! { a href=(YOU) { "Your sign-in" } },
    };
    frame.page(viewer, above, title, content)
}

/// Names the balance, and says how long it lasts if that is not for long.
fn credit_title(viewer: &Viewer) -> String {
    match viewer.days_left.filter(|_| viewer.is_credit_short()) {
        Some(1) => "Credit, 1 day".into(),
        Some(days) => format!("Credit, {days} days"),
        None => "Credit".into(),
    }
}

/// Makes the box that finds anything. It is sent as a form, so that a pasted plaintext is in no address.
fn find(viewer: &Viewer) -> Markup {
    html! {
        form.find method="post" action=(FIND) role="search" aria-label="All of the account" {
            (hidden(viewer))
            input type="search" name="q" required aria-label="Find" placeholder="Key, group, id …" autocomplete="off";
            button { "Go" }
        }
    }
}

/// Links the parts of the dashboard that the member may see.
fn links(viewer: &Viewer, section: Section) -> Markup {
    let needs_a_look = viewer.funds.has_refused || viewer.is_credit_short();
    let has_dot = |listed: Section| listed == Section::Overview && needs_a_look;
    let seen = |parts: &'static [ListedSection]| {
        parts.iter().copied().filter(move |(listed, _, _)| listed.is_seen_by(viewer))
    };
    let address = |listed: Section, path: &str| match viewer.range.as_str() {
        range if !range.is_empty() && listed.has_range() => format!("{path}?{range}"),
        _ => path.to_owned(),
    };
    html! {
        @for (heading, parts) in Section::LISTED.into_iter().filter(|(_, parts)| seen(parts).next().is_some()) {
            p aria-hidden="true" { (heading) }
            ul aria-label=(heading) {
                @for (listed, name, path) in seen(parts) {
                    @let dot = has_dot(listed).then_some("needs-a-look");
                    li { a.dot[dot.is_some()] href=(address(listed, path)) aria-current=[(listed == section).then_some("page")] aria-describedby=[dot] { (name) } }
                }
            }
        }
        // Beside the link, so that it is no part of its name.
        @if needs_a_look && Section::Overview.is_seen_by(viewer) { span.hidden #needs-a-look { "Something needs a look." } }
    }
}

/// The member's name and rights.
fn name_and_rights(viewer: &Viewer) -> Markup {
    let member = &viewer.signed_in.member;
    html! {
        span.name title=(member.name) { bdi { (member.name) } }
        // The owner of a first run is named after the role.
        @if member.name != member.role.as_str() { span.badge { (member.role.as_str()) } }
    }
}

/// Page that another one leads back to.
#[derive(Clone, Copy)]
pub struct WayBack<'a> {
    pub address: &'a str,
    /// What the page is called, as in `Back to the key`.
    pub name: &'a str,
}

/// Makes a form that asks before something is done. Who may not do it reads that owners can.
pub fn confirmation(
    viewer: &Viewer,
    question: &Markup,
    effects: &[impl Render],
    deed: &str,
    back: WayBack<'_>,
) -> Markup {
    html! {
        @if viewer.keeps_keys() {
            form method="post" {
                p.lead { (question) }
                ul { @for effect in effects { li { (effect) } } }
                (hidden(viewer))
                div.buttons { button.danger { (deed) } a.button href=(back.address) { "Cancel" } }
            }
        } @else {
            p.lead { "Owners can do this. Your role is viewer." }
            p { a.button href=(back.address) { "Back to the " (back.name) } }
        }
    }
}
