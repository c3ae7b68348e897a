//! Pages of failures: with navigation for members, bare for others.

use axum::response::{IntoResponse, Response};
use maud::html;

use crate::{
    app::App,
    browser::Browser,
    failure::Explained,
    layout::{Section, bare, page},
    paths::HOME,
    session::Viewer,
};

/// Puts a page around an answer if it is a failure: with navigation for a member, bare for others.
pub async fn framed(app: &App, browser: Browser, mut response: Response) -> Response {
    let Some(Explained { title, message }) = response.extensions_mut().remove() else { return response };
    let content = html! {
        p { (message) }
        p { a.button href=(HOME) { "Back to the dashboard" } }
    };
    let theme = browser.theme;
    let page = match Viewer::of(app, browser).await {
        Ok(Some(viewer)) => page(&viewer, Section::Unlisted, title, &content),
        Ok(None) | Err(_) => bare(theme, title, &html! { h1 { (title) } (content) }),
    };
    (response.status(), page).into_response()
}
