//! The member's own sign-in: password, second factor and sessions.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use maud::{Markup, html};
use shared::{ids::SessionId, text::sentence};

use crate::people::second_factor;
use domain::member::{LinkMaker, PasswordCondition, Session, SignInWay};
use key_service_management::{
    Error,
    members::{MAX_PASSWORD_CHARS, MIN_PASSWORD_CHARS, MemberRefused},
};
use key_service_page::{
    app::App,
    entry::{Entered, Fault},
    failure::Failure,
    form::Fields,
    layout::{Section, hidden, page, reveals},
    notice,
    paths::{HOME, YOU},
    second_factor::present_password,
    session::{Act, OwnViewer, Viewer},
    show::time,
    table::{Column, Row, Table, hidden_heading},
    zone::Zone,
};

pub(crate) async fn show(State(app): State<App>, OwnViewer(viewer): OwnViewer) -> Result<Response, Failure> {
    whole(&app, &viewer, None).await
}

async fn whole(app: &App, viewer: &Viewer, fault: Option<&Fault>) -> Result<Response, Failure> {
    let (account, member) = (viewer.signed_in.account, viewer.signed_in.member.id);
    let sessions = app.management.sessions(account, member).await?;
    let content = html! {
        @if let Some(link) = &viewer.signed_in.member.last_link {
            p.note { (maker(&link.by)) " made a sign-in link for you, " (time(link.at))
                ". If you did not ask for it, set a new password, which ends all links and other sessions, and find out why it was made." }
        }
        section.card aria-labelledby="password-heading" {
            h2 #password-heading { "Password" }
            (password(app, viewer, fault))
        }
        section.card aria-labelledby="factor-heading" {
            h2 #factor-heading { "Second factor" }
            (second_factor::summary(&viewer.signed_in.member))
        }
        section.card aria-labelledby="zone-heading" {
            h2 #zone-heading { "Time zone" }
            (zones(viewer))
        }
        h2 { "Where you are signed in" }
        (table(viewer, &sessions))
    };
    Ok(page(viewer, Section::Unlisted, "Your sign-in", &content))
}

fn password(app: &App, viewer: &Viewer, fault: Option<&Fault>) -> Markup {
    // Never send an entered password back to the browser.
    let fields = Fields::default();
    let entered = fault.map_or(Entered::new(&fields), |fault| Entered::refused(&fields, fault));
    let hint = format!("At least {MIN_PASSWORD_CHARS} characters. Several words are easy to remember.");
    let condition = app.management.password_condition(&viewer.signed_in);
    html! {
        @if viewer.signed_in.member.password.is_some() {
            p { "You have a password. Setting a new one ends your other sessions and unused sign-in links." }
        } @else {
            p { "You sign in with links that an owner or an operator makes for you. With a password you can sign in on your own." }
        }
        @match condition {
            PasswordCondition::FreshSignIn => p { "To set a password, sign in with a new link first." },
            PasswordCondition::None | PasswordCondition::PresentPassword => form.stack method="post" action={ (YOU) "/password" } {
                (hidden(viewer))
                // Password managers store a name with each password, so a hidden field contains the member's name.
                input type="text" autocomplete="username" value=(viewer.signed_in.member.name) hidden;
                @if condition == PasswordCondition::PresentPassword {
                    (present_password(entered, "Forgotten? Sign in with a link from an operator."))
                }
                (entered.field("password", "New password", &hint, |entry| html! {
                    input id=(entry.name) type="password" name=(entry.name) required autocomplete="new-password"
                        minlength=(MIN_PASSWORD_CHARS) maxlength=(MAX_PASSWORD_CHARS)
                        aria-describedby=[&entry.described] aria-invalid=[entry.invalid] autofocus[entry.has_focus];
                }))
                (reveals("password"))
                div { button.primary { "Save" } }
            },
        }
    }
}

/// Renders a form to choose a time zone. It is sent to the same path as the form in the personal menu.
fn zones(viewer: &Viewer) -> Markup {
    let chosen = viewer.browser.zone();
    html! {
        p { "All pages show times, days and sums in this zone. Without a choice, it is your browser's. Limits reset in UTC, and statements cover months in UTC." }
        form.row method="post" action={ (HOME) "/theme" } {
            (hidden(viewer))
            label { "Time zone" select name="zone" {
                @for name in Zone::names() { option selected[name == chosen.name()] { (name) } }
            } }
            button { "Save time zone" }
        }
    }
}

/// Names the creator of a link, at the start of a sentence.
fn maker(by: &LinkMaker) -> Markup {
    html! {
        @match by {
            LinkMaker::Operator => "An operator",
            LinkMaker::Member => "You",
            LinkMaker::Owner(name) => bdi { (name) },
        }
    }
}

/// Describes how a session began.
fn way(way: &SignInWay) -> Markup {
    html! {
        @match way {
            SignInWay::Password => "with your password",
            SignInWay::Link(LinkMaker::Operator) => "with a link from an operator",
            SignInWay::Link(LinkMaker::Member) => "with your own link",
            SignInWay::Link(LinkMaker::Owner(name)) => { "with a link from " bdi { (name) } },
        }
    }
}

fn table(viewer: &Viewer, sessions: &[Session]) -> Markup {
    let columns = [
        Column::new("Browser", ""),
        Column::new("Signed in", "wide-only"),
        Column::new("Last used", "wide-only"),
        Column::new(hidden_heading("Sign out"), "slim act"),
    ];
    let row = |session: &Session| {
        let signed_in = html! { (time(session.created_at)) " " (way(&session.way)) };
        let name = html! {
            bdi title=(session.agent) { (browser(&session.agent)) }
            @if !session.address.is_empty() { p.under { "from " (session.address) } }
            p.narrow-only { "signed in " (signed_in) }
            p.narrow-only { "last used " (time(session.seen_at)) }
        };
        let end = html! {
            @if session.id == viewer.signed_in.session.id { span.badge.active { "this one" } }
            @else {
                form method="post" action={ (YOU) "/sessions/" (session.id.to_string()) "/end" } {
                    (hidden(viewer))
                    button.danger { "Sign out" span.hidden { " of " (browser(&session.agent)) } }
                }
            }
        };
        Row::new([name, signed_in, time(session.seen_at), end])
    };
    Table::new("Sessions", columns).rows(sessions.iter().rev().map(row))
}

/// Names a browser and its operating system, from its user agent.
fn browser(agent: &str) -> String {
    match system(agent) {
        Some(system) => format!("{} on {system}", program(agent)),
        None => program(agent).to_owned(),
    }
}

/// Finds the operating system in a user agent. The order matters: an iPhone's user agent also contains "Mac OS X".
fn system(agent: &str) -> Option<&'static str> {
    let known = [
        ("iPhone", "iPhone"),
        ("iPad", "iPad"),
        ("Android", "Android"),
        ("Windows", "Windows"),
        ("Mac OS X", "macOS"),
        ("CrOS", "ChromeOS"),
        ("Linux", "Linux"),
    ];
    known.into_iter().find(|(part, _)| agent.contains(part)).map(|(_, name)| name)
}

/// Finds the browser in a user agent. The order matters: the user agent of each browser in this list also names the
/// browsers after it.
fn program(agent: &str) -> &str {
    let known = ["Firefox", "Edg", "OPR", "Chrome", "Safari", "curl"];
    known.into_iter().find(|name| agent.contains(name)).map_or("Another client", |name| match name {
        "Edg" => "Edge",
        "OPR" => "Opera",
        other => other,
    })
}

pub(crate) async fn set_password(
    State(app): State<App>,
    Act { viewer, form }: Act,
) -> Result<Response, Failure> {
    let (present, password) = (form.get("present").into(), form.get("password").into());
    let refused = match app.management.set_password(&viewer.signed_in, present, password).await {
        Ok(()) => {
            let line = "Your password is set. Your other sessions have ended, and unused sign-in links no longer work.";
            return Ok(notice::done(&viewer, YOU, line));
        }
        Err(Error::Refused(refused)) => refused,
        Err(other) => return Err(other.into()),
    };
    let (field, status) = match refused {
        MemberRefused::BadPassword => ("password", StatusCode::UNPROCESSABLE_ENTITY),
        MemberRefused::WrongPresentPassword => ("present", StatusCode::FORBIDDEN),
        MemberRefused::StaleSignIn => ("password", StatusCode::FORBIDDEN),
        MemberRefused::TooManyAttempts => ("present", StatusCode::TOO_MANY_REQUESTS),
        other => return Err(Error::Refused(other).into()),
    };
    let fault = Fault::of(field, sentence(&refused.to_string()));
    let again = whole(&app, &viewer, Some(&fault)).await?;
    Ok((status, again).into_response())
}

pub(crate) async fn end_session(
    State(app): State<App>,
    Path(id): Path<String>,
    Act { viewer, .. }: Act,
) -> Result<Response, Failure> {
    let id: SessionId = id.parse().map_err(|_| Failure::NotFound)?;
    app.management.end_session(viewer.signed_in.account, viewer.signed_in.member.id, id).await?;
    Ok(notice::done(&viewer, YOU, "That browser was signed out."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_names_the_browser_and_its_system() {
        for (agent, shown) in [
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/130.0 Safari/537.36 Edg/130.0",
                "Edge on Windows",
            ),
            (
                "Mozilla/5.0 (Linux; Android 14) AppleWebKit/537.36 Chrome/130.0 Mobile Safari/537.36",
                "Chrome on Android",
            ),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) Version/17.5 Mobile Safari/604.1",
                "Safari on iPhone",
            ),
            ("curl/8.5.0", "curl"),
            ("", "Another client"),
        ] {
            assert_eq!(browser(agent), shown);
        }
    }
}
