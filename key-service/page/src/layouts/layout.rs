//! The layout of dashboard pages: navigation, the account's credit, and who is signed in.

use axum::response::Response;
use maud::{Markup, Render, html};

use domain::access::{Effect, Subject};

pub use super::frame::hidden;
pub use crate::site::document::{bare, hinted, problem, reveals};
use crate::{
    format::show::glance,
    layouts::frame::Frame,
    site::paths::{ACTIVITY, GROUPS, HOME, KEYS, MANAGEMENT_KEYS, MARGIN, YOU},
    visitors::session::Viewer,
};

/// Path to which the search box sends its text. The page finds anything in the account by name, id or plaintext.
pub const FIND: &str = "/dashboard/find";

/// A link in the navigation: its section, name and path.
type ListedSection = (Section, &'static str, &'static str);

/// A section of the dashboard, as the navigation lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Spend of the last days, and what needs attention.
    Overview,
    /// Keys that make model calls.
    Keys,
    /// Groups of keys that have shared limits.
    Groups,
    /// Keys for the management API.
    ManagementKeys,
    /// All billed requests and the latest refused requests.
    Requests,
    Models,
    Credit,
    /// Charges compared with upstream costs, for owners.
    Margin,
    /// The people who sign in.
    Members,
    /// Changes to the account, and thresholds that were crossed.
    Events,
    Webhooks,
    /// Rules that warn people.
    Alerts,
    /// A chat in the browser.
    TryIt,
    /// Pages that are not in the navigation: the member's own sign-in, search results and failures.
    Unlisted,
}

impl Section {
    /// The navigation: headings and the links below them.
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
                (Self::Alerts, "Alerts", "/dashboard/alerts"),
                (Self::Webhooks, "Webhooks", "/dashboard/webhooks"),
                (Self::Events, "Events", "/dashboard/events"),
            ],
        ),
    ];

    /// Returns whether the member's navigation has this section.
    fn is_seen_by(self, viewer: &Viewer) -> bool {
        match self {
            Self::Keys | Self::Groups | Self::Requests | Self::Models | Self::TryIt | Self::Events => {
                viewer.may(Effect::Read, Subject::Keys).is_ok()
            }
            Self::Overview
            | Self::Credit
            | Self::Members
            | Self::ManagementKeys
            | Self::Webhooks
            | Self::Alerts => viewer.may(Effect::Read, Subject::Account).is_ok(),
            Self::Margin => viewer.is_owner(),
            Self::Unlisted => false,
        }
    }

    /// Returns whether the section's pages cover a range of days. Its link keeps the chosen range.
    const fn has_range(self) -> bool {
        matches!(self, Self::Overview | Self::Requests | Self::Margin)
    }
}

/// Renders a page for a signed-in member. The title is also the heading. A page below its section's first page has a
/// link back to the first page. A page that an action has redirected to shows the result of the action.
pub fn page(viewer: &Viewer, section: Section, title: &str, content: &Markup) -> Response {
    let listed =
        Section::LISTED.iter().flat_map(|(_, parts)| *parts).find(|(listed, _, _)| *listed == section);
    let above = listed.filter(|(_, name, _)| *name != title).map(|(_, name, path)| (*name, *path));
    let frame = Frame {
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
    let content = html! { (suspended(viewer)) (content) };
    frame.page(viewer, above, title, &content)
}

/// Shows on every page that the account is suspended, and why.
fn suspended(viewer: &Viewer) -> Markup {
    let reason = viewer.funds.suspended_reason.as_deref().unwrap_or_default();
    html! {
        @if viewer.funds.standing.is_some() {
            p.problem { "This account is suspended: " bdi { (reason) } " Requests are refused, and nothing can be changed here." }
        }
    }
}

/// Returns the label of the balance. If the credit is short, it says how many days are left.
fn credit_title(viewer: &Viewer) -> String {
    match viewer.days_left.filter(|_| viewer.is_credit_short()) {
        Some(0) => "Credit, under 1 day".into(),
        Some(1) => "Credit, 1 day".into(),
        Some(days) => format!("Credit, {days} days"),
        None => "Credit".into(),
    }
}

/// Renders the search box. It sends a POST, so that a pasted plaintext does not end up in an address.
fn find(viewer: &Viewer) -> Markup {
    html! {
        form.find method="post" action=(FIND) role="search" aria-label="Search the account" {
            (hidden(viewer))
            input type="search" name="q" required aria-label="Find" placeholder="Key, group, id …" autocomplete="off";
            button { "Go" }
        }
    }
}

/// Renders links to the sections that the member may see.
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
        // This text is outside of the link, so that it is not part of the link's name.
        @if needs_a_look && Section::Overview.is_seen_by(viewer) { span.hidden #needs-a-look { "Something needs attention." } }
    }
}

/// Renders the member's name and role.
fn name_and_rights(viewer: &Viewer) -> Markup {
    let member = &viewer.signed_in.member;
    html! {
        span.name title=(member.name) { bdi { (member.name) } }
        // The first run names its owner "owner", so the badge would only repeat the name.
        @if member.name != member.role.as_str() { span.badge { (member.role.as_str()) } }
    }
}

/// The page to which a "Back" or "Cancel" button leads.
#[derive(Clone, Copy)]
pub struct WayBack<'a> {
    pub address: &'a str,
    /// The page's name after `Back to the`, such as `key`.
    pub name: &'a str,
}

/// Renders a form that asks for confirmation. Members who may not confirm see a note that owners can.
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
