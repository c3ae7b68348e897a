//! Suspending, restoring and closing an account.

use axum::{
    extract::{Path, State},
    response::Response,
};
use domain::{governed::registry::RegistryRefused, ledger::StandingAct};
use key_service_management::{Error, account_list::AccountRow};
use key_service_page::{
    app::App,
    entry::{Entered, Fault, refused_form},
    failure::Failure,
    form::Fields,
    frame::hidden,
    notice,
    operator::{Operator, OperatorAct},
    person::ActOf,
    show::usd,
};
use maud::{Markup, html};
use shared::{error::ApiError, wire::MAX_REASON_CHARS};

use crate::{
    customers::account::found,
    layout::{ACCOUNT, Section, page},
};

pub(crate) async fn ask_suspension(
    State(app): State<App>,
    Path(id): Path<String>,
    operator: Operator,
) -> Result<Response, Failure> {
    let account = found(&app, &id).await?;
    Ok(suspension(&operator, &account, Entered::new(&Fields::default()).focused("reason")))
}

fn suspension(operator: &Operator, account: &AccountRow, entered: Entered<'_>) -> Response {
    let content = html! {
        p.lead { "Suspend " strong { bdi { (account.funds.name) } } "?" }
        ul {
            li { "The next request of each of its API keys is refused, on every server." }
            li { "Streams end within five seconds. Other requests in flight end and are billed." }
            li { "Its members and management keys can still read, but change nothing." }
        }
        form.stack.card method="post" {
            (hidden(operator))
            (entered.line("reason", "Reason", "Members see it.", MAX_REASON_CHARS))
            div.buttons { button.danger { "Suspend" } a.button href={ (ACCOUNT) "/" (account.id.to_string()) } { "Cancel" } }
        }
    };
    page(operator, Section::Accounts, "Suspend an account", &content)
}

pub(crate) async fn suspend(
    State(app): State<App>,
    Path(id): Path<String>,
    OperatorAct(ActOf { viewer: operator, form }): OperatorAct,
) -> Result<Response, Failure> {
    let account = found(&app, &id).await?;
    let to = StandingAct::Suspend(form.get("reason").trim().to_owned());
    match app.management.change_standing(account.id, to, operator.signed_in.as_operator()).await {
        Ok(_) => Ok(done(&operator, &account, "suspended")),
        Err(Error::Refused(RegistryRefused::BadReason)) => {
            let fault = Fault::of("reason", format!("Enter 1 to {MAX_REASON_CHARS} visible characters."));
            Ok(refused_form(suspension(&operator, &account, Entered::refused(&form, &fault))))
        }
        Err(error) => Err(failure(error)),
    }
}

pub(crate) async fn ask_restoration(
    State(app): State<App>,
    Path(id): Path<String>,
    operator: Operator,
) -> Result<Response, Failure> {
    let account = found(&app, &id).await?;
    let content = html! {
        p.lead { "Restore " strong { bdi { (account.funds.name) } } "? Its API keys work again at once." }
        (question(&operator, &account, "primary", "Restore"))
    };
    Ok(page(&operator, Section::Accounts, "Restore an account", &content))
}

pub(crate) async fn restore(
    State(app): State<App>,
    Path(id): Path<String>,
    OperatorAct(ActOf { viewer: operator, .. }): OperatorAct,
) -> Result<Response, Failure> {
    let account = found(&app, &id).await?;
    let restored =
        app.management.change_standing(account.id, StandingAct::Restore, operator.signed_in.as_operator());
    restored.await.map_err(failure)?;
    Ok(done(&operator, &account, "active again"))
}

pub(crate) async fn ask_closure(
    State(app): State<App>,
    Path(id): Path<String>,
    operator: Operator,
) -> Result<Response, Failure> {
    let account = found(&app, &id).await?;
    let content = html! {
        p.lead { "Close " strong { bdi { (account.funds.name) } } "?" }
        ul {
            li { "An account can be closed once it has no credit and nothing is held. It has " (usd(account.funds.credit)) ", and " (usd(account.funds.held)) " are held." }
            li { "No key and no member of it can do or read anything any more. You can still read its bills and events." }
            li { "Its name stays taken." }
            li { "This cannot be undone." }
        }
        (question(&operator, &account, "danger", "Close"))
    };
    Ok(page(&operator, Section::Accounts, "Close an account", &content))
}

pub(crate) async fn close(
    State(app): State<App>,
    Path(id): Path<String>,
    OperatorAct(ActOf { viewer: operator, .. }): OperatorAct,
) -> Result<Response, Failure> {
    let account = found(&app, &id).await?;
    let closed =
        app.management.change_standing(account.id, StandingAct::Close, operator.signed_in.as_operator());
    closed.await.map_err(failure)?;
    Ok(done(&operator, &account, "closed"))
}

fn question(operator: &Operator, account: &AccountRow, class: &str, act: &str) -> Markup {
    html! {
        form method="post" {
            (hidden(operator))
            div.buttons { button class=(class) { (act) } a.button href={ (ACCOUNT) "/" (account.id.to_string()) } { "Cancel" } }
        }
    }
}

fn done(operator: &Operator, account: &AccountRow, what: &str) -> Response {
    tracing::info!(account = %account.id, operator = operator.name(), "the account is {what}");
    let line = format!("The account {} is {what}.", account.funds.name);
    notice::done(operator, &format!("{ACCOUNT}/{}", account.id), &line)
}

fn failure(error: Error<RegistryRefused>) -> Failure {
    match error {
        Error::Refused(RegistryRefused::NotFound) => Failure::NotFound,
        Error::Refused(other) => Failure::BadRequest(ApiError::from(other).message.into_owned()),
        Error::Store(unavailable) => unavailable.into(),
    }
}
