//! The choice of colours, in the frame of every page.

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use http::{HeaderMap, header};
use key_service_page::{
    app::App,
    failure::Failure,
    paths::HOME,
    session::Act,
    theme::{Theme, place_of_choice},
};

/// Stores the chosen colours in the browser, and leads back to the page of the choice.
pub(crate) async fn choose(State(_): State<App>, headers: HeaderMap, act: Act) -> Result<Response, Failure> {
    let theme = Theme::parse(act.form.get("theme")).unwrap_or(Theme::System);
    let cookie = act.viewer.browser.theme_cookie(theme);
    Ok((
        [(header::SET_COOKIE, cookie)],
        Redirect::to(&place_of_choice(&headers, &act.viewer.browser.base(), HOME)),
    )
        .into_response())
}
