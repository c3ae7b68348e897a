//! The pages of the dashboard in their frame: navigation, the account, and who is signed in.

use axum::response::Response;
use maud::{Markup, Render, html};
use shared::money::NanoUsd;

pub use super::{
    document::{bare, hinted, problem, reveals},
    frame::hidden,
};
use crate::{
    frame::Frame,
    paths::{HOME, YOU},
    session::Viewer,
    show::glance,
};

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
    Activity,
    /// Models on offer, with their prices.
    Models,
    /// Deposits, and a statement for each month.
    Credit,
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
    /// The parts listed in the navigation, with addresses, in order.
    const LISTED: [(Self, &'static str, &'static str); 11] = [
        (Self::Overview, "Overview", HOME),
        (Self::Keys, "API keys", "/dashboard/keys"),
        (Self::Groups, "Groups", "/dashboard/groups"),
        (Self::ManagementKeys, "Management keys", "/dashboard/management-keys"),
        (Self::Activity, "Activity", "/dashboard/activity"),
        (Self::Models, "Models", "/dashboard/models"),
        (Self::Credit, "Credit", "/dashboard/credit"),
        (Self::Members, "Members", "/dashboard/members"),
        (Self::Events, "Events", "/dashboard/events"),
        (Self::Webhooks, "Webhooks", "/dashboard/webhooks"),
        (Self::TryIt, "Try it", "/dashboard/try-it"),
    ];
}

/// Makes a page for a signed-in member. Its title is also its heading. A page below the one of its section leads back
/// to it, and the page after an act says what was done.
pub fn page(viewer: &Viewer, section: Section, title: &str, content: &Markup) -> Response {
    let listed = Section::LISTED.iter().find(|(listed, _, _)| *listed == section);
    let above = listed.filter(|(_, name, _)| *name != title).map(|(_, name, path)| (*name, *path));
    let needs_a_look = viewer.funds.has_refused || viewer.funds.credit <= NanoUsd::ZERO;
    let frame = Frame {
        home: HOME,
        name: &viewer.funds.name,
        balance: html! { p.balance { span { "Credit" } strong { (glance(viewer.funds.credit)) } } },
        navigation: "Dashboard",
        links: html! {
            ul {
                @for (listed, name, path) in Section::LISTED {
                    @let dot = (listed == Section::Overview && needs_a_look).then_some("needs-a-look");
                    li { a.dot[dot.is_some()] href=(path) aria-current=[(listed == section).then_some("page")] aria-describedby=[dot] { (name) } }
                }
            }
            // Beside the link, so that it is no part of its name.
            @if needs_a_look { span.hidden #needs-a-look { "Something needs a look." } }
        },
        person: name_and_rights(viewer),
    };
    frame.page(viewer, above, title, content)
}

/// The member's name and rights.
fn name_and_rights(viewer: &Viewer) -> Markup {
    let member = &viewer.signed_in.member;
    html! {
        a.name href=(YOU) title={ "Your sign-in: " (member.name) } { bdi { (member.name) } }
        // The owner of a first run is named after the role.
        @if member.name != member.role.as_str() { span.badge { (member.role.as_str()) } }
    }
}

/// Makes a form that asks before something is done. Viewers read that owners can do it. `back` is an address, with the
/// name of its page.
pub fn confirmation(
    viewer: &Viewer,
    question: &Markup,
    effects: &[impl Render],
    deed: &str,
    (back, name): (&str, &str),
) -> Markup {
    html! {
        @if viewer.is_owner() {
            form method="post" {
                p.lead { (question) }
                ul { @for effect in effects { li { (effect) } } }
                (hidden(viewer))
                div.buttons { button.danger { (deed) } a.button href=(back) { "Cancel" } }
            }
        } @else {
            p.lead { "Owners can do this. Your role is viewer." }
            p { a.button href=(back) { "Back to the " (name) } }
        }
    }
}
