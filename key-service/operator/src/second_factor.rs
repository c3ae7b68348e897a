//! An operator's second factor. It is required for every other page, and no page turns it off.

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use domain::{member::PasswordCondition, second_factor::FactorId};
use key_service_management::Error;
use key_service_page::{
    app::App,
    entry::Entered,
    failure::Failure,
    form::Fields,
    frame::hidden,
    operator::{NewOperator, NewOperatorAct},
    paths::{OPERATOR, OPERATOR_SECOND_FACTOR},
    second_factor::{code_field, fault, offer, recovery_codes},
    show::program,
};
use maud::html;

use crate::layout::page_before;

/// Account name that authenticator apps show.
const ISSUED_FOR: &str = "operators";

/// Offers a secret, unless the operator has a second factor.
pub(crate) async fn show(State(app): State<App>, operator: NewOperator) -> Result<Response, Failure> {
    if operator.has_second_factor() {
        return Ok(Redirect::to(OPERATOR).into_response());
    }
    asked(&app, &operator, None, Entered::new(&Fields::default()))
}

/// Offers a secret and asks for a first code. This needs a fresh session, so that a stolen cookie cannot set one up.
fn asked(
    app: &App,
    operator: &NewOperator,
    id: Option<FactorId>,
    entered: Entered<'_>,
) -> Result<Response, Failure> {
    let content = match app.management.password_condition(&operator.signed_in) {
        PasswordCondition::None => {
            let offered = app.management.offered_factor(&operator.signed_in, ISSUED_FOR, id)?;
            html! {
                p.lead { "Operators need a second factor. Set it up to see any other page." }
                (offer(&offered))
                form.stack method="post" action=(OPERATOR_SECOND_FACTOR) {
                    (hidden(operator))
                    input type="hidden" name="factor" value=(offered.id.to_string());
                    (code_field(entered, "Six digits."))
                    button.primary { "Turn on" }
                }
            }
        }
        PasswordCondition::FreshSignIn | PasswordCondition::PresentPassword => html! {
            p.lead { "Operators need a second factor. To set it up, sign in with a new link:" }
            pre tabindex="0" { (program()) " operators sign-in-link --name NAME" }
        },
    };
    Ok(page_before(operator, "Second factor", &content))
}

/// Turns the second factor on and shows the recovery codes, for the only time.
pub(crate) async fn enable(
    State(app): State<App>,
    NewOperatorAct { operator, form }: NewOperatorAct,
) -> Result<Response, Failure> {
    let id = FactorId::parse(form.get("factor")).ok_or(Failure::NotFound)?;
    let code = form.get("code");
    let refused = match app.management.enable_second_factor(&operator.signed_in, id, code, "".into()).await {
        Ok(codes) => {
            return Ok(page_before(&operator, "Recovery codes", &recovery_codes(&codes, OPERATOR)));
        }
        Err(Error::Refused(refused)) => refused,
        Err(other) => return Err(other.into()),
    };
    let (fault, status) = fault(refused)?;
    let again = asked(&app, &operator, Some(id), Entered::refused(&Fields::default(), &fault))?;
    Ok((status, again).into_response())
}
