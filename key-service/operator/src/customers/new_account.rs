//! Creating an account with its first credit.

use axum::{extract::State, response::Response};
use key_service_page::{
    app::App,
    entry::{Entered, Fault, refused_form},
    failure::Failure,
    form::Fields,
    frame::hidden,
    notice,
    operator::{Operator, OperatorAct},
    paths::OPERATOR,
    person::ActOf,
    show::usd,
};
use maud::html;
use shared::{money::NanoUsd, text::is_name};

use crate::{
    customers::credit_form::{amount, amount_field, fault},
    layout::{ACCOUNT, NEW_ACCOUNT, Section, page},
};

/// Maximum length of a name. The command has the same limit.
const MAX_NAME_CHARS: usize = 80;

pub(crate) async fn show(operator: Operator) -> Response {
    let fields = Fields::of([("amount", "0".to_owned())]);
    asked(&operator, Entered::new(&fields).focused("name"))
}

fn asked(operator: &Operator, entered: Entered<'_>) -> Response {
    let content = html! {
        p.lead { "An account has keys and prepaid credit. Invite its members afterwards, with a command." }
        form.stack method="post" action=(NEW_ACCOUNT) {
            (hidden(operator))
            (entered.line("name", "Name", "Unique. Members see it, and enter it when they sign in.", MAX_NAME_CHARS))
            (amount_field(entered, "First credit (USD)", "0 for none. To add a payment with an id, use the account’s page afterwards."))
            div.buttons { button.primary { "Create account" } a.button href=(OPERATOR) { "Cancel" } }
        }
    };
    page(operator, Section::Accounts, "New account", &content)
}

fn read(form: &Fields) -> Result<(&str, NanoUsd), Fault> {
    let name = form.get("name").trim();
    if !is_name(name, MAX_NAME_CHARS) {
        return Err(Fault::of("name", format!("Enter 1 to {MAX_NAME_CHARS} visible characters.")));
    }
    Ok((name, amount(form, NanoUsd::ZERO)?))
}

/// Creates the account. Its name is unique, so a form that is sent twice creates only one account.
pub(crate) async fn create(
    State(app): State<App>,
    OperatorAct(ActOf { viewer: operator, form }): OperatorAct,
) -> Result<Response, Failure> {
    let fault = match read(&form) {
        Ok((name, credit)) => {
            match app.management.create_account(name, credit, operator.signed_in.as_operator()).await {
                Ok(id) => {
                    tracing::info!(account = %id, name, usd = %credit, operator = operator.name(), "account created");
                    let line = format!("Created {name} with {} of credit.", usd(credit));
                    return Ok(notice::done(&operator, &format!("{ACCOUNT}/{id}"), &line));
                }
                Err(error) => fault(error)?,
            }
        }
        Err(fault) => fault,
    };
    Ok(refused_form(asked(&operator, Entered::refused(&form, &fault))))
}
