//! The layout of the operators' pages, and of failures on them.

use axum::response::{IntoResponse, Response};
use key_service_page::{
    app::App,
    browser::Browser,
    failure_page::explained,
    frame::Frame,
    layout::{WayBack, bare},
    operator::{NewOperator, Operator},
    paths::OPERATOR,
};
use maud::{Markup, html};

use crate::paths::{CATALOGUE, INSTALLATION, UPSTREAMS};

/// Shown next to the logo and in the document's title.
const NAME: &str = "Operator";

/// A section of the operators' pages, as in the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Accounts,
    Upstreams,
    Catalogue,
    Installation,
    /// Not in the navigation: failures.
    Unlisted,
}

impl Section {
    /// The links of the navigation, in order.
    const LISTED: [(Self, &'static str, &'static str); 4] = [
        (Self::Accounts, "Accounts", OPERATOR),
        (Self::Upstreams, "Upstreams", UPSTREAMS),
        (Self::Catalogue, "Catalogue", CATALOGUE),
        (Self::Installation, "Installation", INSTALLATION),
    ];
}

/// Renders a page for an operator. The title is also the heading. A page below its section's first page links back to it.
pub(crate) fn page(operator: &Operator, section: Section, title: &str, content: &Markup) -> Response {
    let links = html! {
        ul {
            @for (listed, name, path) in Section::LISTED {
                li { a href=(path) aria-current=[(listed == section).then_some("page")] { (name) } }
            }
        }
    };
    let listed = Section::LISTED.iter().find(|(listed, _, _)| *listed == section);
    let above = listed.filter(|(_, name, _)| *name != title).map(|(_, name, path)| (*name, *path));
    frame(&operator.0, links).page(operator, above, title, content)
}

/// Renders a page without navigation, for an operator who has no second factor yet.
pub(crate) fn page_before(operator: &NewOperator, title: &str, content: &Markup) -> Response {
    frame(operator, html! {}).page(operator, None, title, content)
}

fn frame(operator: &NewOperator, links: Markup) -> Frame<'static> {
    Frame {
        home: OPERATOR,
        name: NAME,
        balance: html! {},
        finding: html! {},
        navigation: NAME,
        links,
        person: html! { span.name title=(operator.name()) { bdi { (operator.name()) } } },
        own: html! {},
    }
}

/// Renders a failure as a page, with navigation for an operator and bare for others. Other answers pass unchanged.
pub(crate) async fn failure(app: &App, browser: Browser, mut response: Response) -> Response {
    let Some((title, content)) = explained(&mut response, WayBack { address: OPERATOR, name: "accounts" })
    else {
        return response;
    };
    let theme = browser.theme;
    let page = match NewOperator::of(app, browser).await {
        Ok(Some(operator)) if operator.has_second_factor() => {
            page(&Operator(operator), Section::Unlisted, title, &content)
        }
        Ok(Some(_) | None) | Err(_) => bare(theme, title, &html! { h1 { (title) } (content) }),
    };
    (response.status(), page).into_response()
}
