//! The choice of colours, in the frame of every page.

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use http::{HeaderMap, header};
use key_service_page::{
    app::App, destination::Destination, failure::Failure, paths::HOME, session::Act, theme::Theme,
};

/// Stores the chosen colours in the browser, and leads back to the page of the choice.
pub(super) async fn choose(State(_): State<App>, headers: HeaderMap, act: Act) -> Result<Response, Failure> {
    let theme = Theme::parse(act.form.get("theme")).unwrap_or(Theme::System);
    let cookie = act.viewer.browser.theme_cookie(theme);
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(&place(&headers, &act.viewer.browser.base())))
        .into_response())
}

/// Returns the address of the page that a form was on: that of an object, or of a part of the dashboard. A page that
/// asks first leads to its object. A page made by a form has no address.
fn place(headers: &HeaderMap, base: &str) -> String {
    let referer = headers.get(header::REFERER).and_then(|value| value.to_str().ok());
    let place = referer.and_then(|address| Destination::parse(address.strip_prefix(base)?));
    let Some(place) = place else { return HOME.into() };
    let path = place.as_str().split('?').next().unwrap_or_default();
    let mut parts = path.strip_prefix(HOME).unwrap_or_default().split('/').skip(1);
    match (parts.next(), parts.next()) {
        (Some(part), Some(id)) if id.contains('_') || id == "new" => format!("{HOME}/{part}/{id}"),
        (Some(part), Some(_)) => format!("{HOME}/{part}"),
        (Some(_) | None, _) => place.as_str().to_owned(),
    }
}
