//! Pages of failures: with navigation for members, bare for others.

use axum::response::{IntoResponse, Response};
use maud::{Markup, html};

use crate::{
    app::App,
    failure::Explained,
    framed::layout::{Section, WayBack, bare, page},
    site::paths::HOME,
    visitors::{browser::Browser, session::Viewer},
};

/// Renders a failure as a page, with navigation for a member and bare for others. Other answers pass unchanged.
pub async fn framed(app: &App, browser: Browser, mut response: Response) -> Response {
    let Some((title, content)) = explained(&mut response, WayBack { address: HOME, name: "dashboard" })
    else {
        return response;
    };
    let theme = browser.theme;
    let page = match Viewer::of(app, browser).await {
        Ok(Some(viewer)) => page(&viewer, Section::Unlisted, title, &content),
        Ok(None) | Err(_) => bare(theme, title, &html! { h1 { (title) } (content) }),
    };
    (response.status(), page).into_response()
}

/// Takes the title and content of a failure's page out of its response; `None` for any other response. The page links
/// to `back`.
pub fn explained(response: &mut Response, back: WayBack<'_>) -> Option<(&'static str, Markup)> {
    let Explained { title, message } = response.extensions_mut().remove()?;
    let content = html! {
        p { (message) }
        p { a.button href=(back.address) { "Back to the " (back.name) } }
    };
    Some((title, content))
}
