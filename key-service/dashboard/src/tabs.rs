//! The parts of the page of a key or a group, each with an address of its own.

use maud::{Markup, html};

use key_service_page::session::Viewer;

/// A part of the page of a key or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    Overview,
    Requests,
    Settings,
    UseIt,
}

impl Tab {
    const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Overview, "", "Overview"),
        (Self::Requests, "/requests", "Requests"),
        (Self::Settings, "/settings", "Settings"),
        (Self::UseIt, "/use", "Use it"),
    ];
}

/// Makes the links to the parts of the page at `path`, and to what can be done with its subject. Those with a range of days
/// keep it.
pub(super) fn tabs(viewer: &Viewer, path: &str, chosen: Tab, acts: &Markup) -> Markup {
    let address = |tab: Tab, part: &str| {
        let has_range = matches!(tab, Tab::Overview | Tab::Requests) && !viewer.range.is_empty();
        if has_range { format!("{path}{part}?{}", viewer.range) } else { format!("{path}{part}") }
    };
    html! {
        nav.tabs aria-label="Parts of this page" {
            @for (tab, part, title) in Tab::ALL {
                a href=(address(tab, part)) aria-current=[(tab == chosen).then_some("page")] { (title) }
            }
            span.acts { (acts) }
        }
    }
}
