//! The choice of colours, in the frame of every page.

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use http::{HeaderMap, header};
use key_service_page::{
    app::App,
    failure::Failure,
    operator::NewOperatorAct,
    paths::OPERATOR,
    theme::{Theme, place_of_choice},
};

/// Stores the chosen colours in the browser, and leads back to the page of the choice.
pub(crate) async fn choose(
    State(_): State<App>,
    headers: HeaderMap,
    NewOperatorAct { operator, form }: NewOperatorAct,
) -> Result<Response, Failure> {
    let theme = Theme::parse(form.get("theme")).unwrap_or(Theme::System);
    let place = place_of_choice(&headers, &operator.browser.base(), OPERATOR);
    let cookie = [(header::SET_COOKIE, operator.browser.theme_cookie(theme))];
    Ok((cookie, Redirect::to(&place)).into_response())
}
