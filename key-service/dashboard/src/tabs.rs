//! The tabs of a key's or a group's page. Each tab has its own address.

use axum::response::Response;
use maud::{Markup, html};

use crate::activity;
use key_service_page::{
    app::App,
    failure::Failure,
    form::{Fields, PageAddress},
    layout::{Section, page},
    session::Viewer,
};

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

/// The page of a key or a group.
pub(super) struct TabbedPage {
    pub(super) section: Section,
    pub(super) title: String,
    pub(super) path: String,
    /// Filter for the list of requests: `key` or `group`.
    pub(super) filter: &'static str,
    pub(super) id: String,
    /// Links for the key or the group as a whole, such as *Revoke*.
    pub(super) acts: Markup,
}

impl TabbedPage {
    pub(super) fn show(&self, viewer: &Viewer, chosen: Tab, content: &Markup) -> Response {
        let content = html! { (tabs(viewer, &self.path, chosen, &self.acts)) (content) };
        page(viewer, self.section, &self.title, &content)
    }

    pub(super) async fn requests(
        &self,
        app: &App,
        viewer: &Viewer,
        query: &Fields,
    ) -> Result<Response, Failure> {
        let path = format!("{}/requests", self.path);
        let address = PageAddress { path: &path, query };
        let list = activity::list_of(app, viewer, address, self.filter, self.id.clone()).await?;
        Ok(self.show(viewer, Tab::Requests, &list))
    }
}

/// Renders the tabs of the page at `path`, followed by `acts`. Tabs with a range of days keep the chosen range.
fn tabs(viewer: &Viewer, path: &str, chosen: Tab, acts: &Markup) -> Markup {
    let address = |tab: Tab, part: &str| {
        let has_range = matches!(tab, Tab::Overview | Tab::Requests) && !viewer.range.is_empty();
        if has_range { format!("{path}{part}?{}", viewer.range) } else { format!("{path}{part}") }
    };
    html! {
        nav.tabs aria-label="Tabs" {
            @for (tab, part, title) in Tab::ALL {
                a href=(address(tab, part)) aria-current=[(tab == chosen).then_some("page")] { (title) }
            }
            span.acts { (acts) }
        }
    }
}
