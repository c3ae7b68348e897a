//! Members: the list, invitations, sign-in links and removal.

use std::collections::HashMap;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use maud::{Markup, html};
use shared::{
    ids::{GroupId, MemberId},
    text::sentence,
};

use crate::people::roles;
use domain::{
    group::Group,
    member::{LinkMaker, Member},
};
use key_service_management::{
    Error,
    members::{LastSignIn, MAX_MEMBER_NAME_CHARS, MemberRefused, SignedIn, Token, link},
};
use key_service_page::{
    app::App,
    entry::{Entered, Fault, refused_form},
    failure::Failure,
    form::Fields,
    layout::{Section, WayBack, confirmation, hidden, page, problem},
    notice,
    object_page::{ObjectAct, ObjectPage},
    session::{Act, OwnerAct, Viewer},
    show::{copyable, time},
    table::{Row, Table},
};
use key_service_settings::settings_form::offered;

pub(super) const PATH: &str = "/dashboard/members";

/// Owners cannot demote or remove themselves, so that they do not lock themselves out.
pub(super) const ONESELF: &str = "This is you. Another owner can change your role or remove you.";

pub(crate) async fn list(State(app): State<App>, viewer: Viewer) -> Result<Response, Failure> {
    whole(&app, &viewer, None, Entered::new(&Fields::default())).await
}

async fn whole(
    app: &App,
    viewer: &Viewer,
    wrong: Option<&str>,
    entered: Entered<'_>,
) -> Result<Response, Failure> {
    let members = app.management.members(viewer.signed_in.account).await?;
    let groups = roles::groups_of(app, viewer, &members).await?;
    let last = app.management.last_sign_ins(viewer.signed_in.account, &members).await?;
    let content = html! {
        p.lead { "Owners can change everything. Viewers can see everything and change nothing. A lead manages the API keys of one group and sees nothing else. Members can see who made a sign-in link for them." }
        (problem(wrong))
        @if viewer.is_owner() {
            form.row.card method="post" action=(PATH) {
                (hidden(viewer))
                (entered.field("name", "Name", "", |entry| html! {
                    input id=(entry.name) name=(entry.name) required maxlength=(MAX_MEMBER_NAME_CHARS) value=(entry.value)
                        autocomplete="off" placeholder="ann@example.com" aria-describedby=[&entry.described]
                        aria-invalid=[entry.invalid] autofocus[entry.has_focus];
                }))
                (roles::fields(entered, &offered(app, viewer).await?))
                button.primary { "Invite" }
            }
        }
        (table(viewer, &members, &last, &groups))
    };
    Ok(page(viewer, Section::Members, "Members", &content))
}

fn table(
    viewer: &Viewer,
    members: &[Member],
    last: &HashMap<MemberId, LastSignIn>,
    groups: &HashMap<GroupId, Group>,
) -> Markup {
    let yes_or_no = |is_set: bool| html! { @if is_set { "set" } @else { span.quiet { "none" } } };
    let columns = [
        ("Name", "wraps"),
        ("Role", "wide-only"),
        ("Password", "wide-only"),
        ("Second factor", "wide-only"),
        ("Last sign-in", "wide-only"),
        ("Invited", "wide-only"),
    ];
    let row = |member: &Member| {
        let signed_in = last.get(&member.id).copied();
        let name = html! {
            a href={ (PATH) "/" (member.id.to_string()) } { bdi { (member.name) } }
            @if is_own(viewer, member) { " " span.badge { "you" } }
            p.narrow-only { (roles::shown(member.role, groups)) ", " (came(member, signed_in)) }
        };
        let last_sign_in = html! { @match signed_in {
            Some(LastSignIn::At(at)) => (time(at)),
            Some(LastSignIn::NotSince(since)) => { span.quiet { "not since " (time(since)) } },
            Some(LastSignIn::Never) | None => span.badge.expired { "not yet" },
        } };
        Row::new([
            name,
            html! { (roles::shown(member.role, groups)) },
            yes_or_no(member.password.is_some()),
            yes_or_no(member.second_factor.is_some()),
            last_sign_in,
            time(member.created_at),
        ])
    };
    Table::new("Members", columns).rows(members.iter().map(row))
}

/// Shows when a member last signed in.
fn came(member: &Member, signed_in: Option<LastSignIn>) -> Markup {
    html! {
        @match signed_in {
            Some(LastSignIn::At(at)) => { "last signed in " (time(at)) },
            Some(LastSignIn::NotSince(since)) => { "not signed in since " (time(since)) },
            Some(LastSignIn::Never) | None => { "invited " (time(member.created_at)) ", has not signed in yet" },
        }
    }
}

pub(super) fn is_own(viewer: &Viewer, member: &Member) -> bool {
    viewer.signed_in.member.id == member.id
}

/// Shows a member, with actions for owners.
pub(crate) async fn show(
    ObjectPage { app, viewer, object: member, .. }: ObjectPage<Member>,
) -> Result<Response, Failure> {
    let groups = roles::groups_of(&app, &viewer, std::slice::from_ref(&member)).await?;
    let last = app.management.last_sign_ins(viewer.signed_in.account, std::slice::from_ref(&member)).await?;
    let content = html! {
        p.lead { span.badge { (roles::shown(member.role, &groups)) } " " (came(&member, last.get(&member.id).copied())) " · "
            @if member.password.is_some() { "has a password" } @else { "signs in with links" }
            @if member.second_factor.is_some() { " and a second factor" } }
        @if viewer.is_owner() { (actions(&viewer, &member)) }
    };
    Ok(page(&viewer, Section::Members, &member.name, &content))
}

/// Shows owners what they can do with a member. Only another owner can change an owner's role or remove an owner.
fn actions(viewer: &Viewer, member: &Member) -> Markup {
    let path = format!("{PATH}/{}", member.id);
    html! {
        section.card {
            h2 { "Sign-in link" }
            p.quiet { "It works once, within 15 minutes. It is shown to you, to send to the member." }
            form.buttons method="post" action={ (path) "/link" } { (hidden(viewer)) button { "Make a sign-in link" } }
        }
        @if is_own(viewer, member) {
            p.note { (ONESELF) }
        } @else {
            section.card {
                h2 { "Role" }
                p.quiet { (roles::rights(member.role)) }
                div.buttons { a.button href={ (path) "/role" } { "Change role …" } }
            }
            @if member.second_factor.is_some() {
                section.card {
                    h2 { "Second factor" }
                    p.quiet { "Each sign-in asks for a code. Remove it if the member has lost both phone and recovery codes." }
                    div.buttons { a.button.danger href={ (path) "/second-factor" } { "Remove second factor …" } }
                }
            }
            section.card {
                h2 { "Remove" }
                p.quiet { "The member is immediately signed out everywhere. Keys that the member created keep working." }
                div.buttons { a.button.danger href={ (path) "/remove" } { "Remove …" } }
            }
        }
    }
}

/// Creates a member and shows a sign-in link to send to them.
pub(crate) async fn invite(
    State(app): State<App>,
    OwnerAct(Act { viewer, form }): OwnerAct,
) -> Result<Response, Failure> {
    let name = form.get("name").trim();
    let refused = async |fault: &Fault| {
        Ok(refused_form(whole(&app, &viewer, None, Entered::refused(&form, fault)).await?))
    };
    let role = match roles::read(&form) {
        Ok(role) => role,
        Err(fault) => return refused(&fault).await,
    };
    match app.management.invite(viewer.signed_in.account, name, role, viewer.signed_in.actor()).await {
        Ok((member, token)) => Ok(link_page(&viewer, &member, &token, "72 hours")),
        Err(Error::Refused(
            reason @ (MemberRefused::BadName | MemberRefused::NameTaken | MemberRefused::TooMany),
        )) => refused(&Fault::of("name", sentence(&reason.to_string()))).await,
        Err(Error::Refused(MemberRefused::NoSuchGroup)) => refused(&roles::no_such_group()).await,
        Err(other) => Err(other.into()),
    }
}

fn link_page(viewer: &Viewer, member: &Member, token: &Token, within: &str) -> Response {
    let content = html! {
        p.lead { "Send this link to " strong { bdi { (member.name) } } ". It works once, within " (within)
            ". Earlier links no longer work." }
        (copyable("Sign-in link", &link(&viewer.browser.base(), token)))
        p { a.button href=(PATH) { "Back to the members" } }
    };
    page(viewer, Section::Members, "Sign-in link", &content)
}

/// Creates a sign-in link for a member.
pub(crate) async fn make_link(
    ObjectAct { app, viewer, object: member, .. }: ObjectAct<Member>,
) -> Result<Response, Failure> {
    let by = match &viewer.signed_in.member {
        own if own.id == member.id => LinkMaker::Member,
        owner => LinkMaker::Owner(owner.name.clone()),
    };
    let token = app.management.sign_in_link(viewer.signed_in.account, &member, by).await?;
    Ok(link_page(&viewer, &member, &token, "15 minutes"))
}

/// Renders a page that asks for confirmation. `effects` describes what will happen.
fn asked(viewer: &Viewer, member: &Member, deed: &str, question: &Markup, effects: &[&str]) -> Response {
    let back = format!("{PATH}/{}", member.id);
    let content = html! {
        @if viewer.is_owner() && is_own(viewer, member) {
            p.lead { (ONESELF) }
            p { a.button href=(back) { "Back" } }
        } @else {
            (confirmation(viewer, question, effects, deed, WayBack { address: &back, name: "member" }))
        }
    };
    page(viewer, Section::Members, deed, &content)
}

/// Explains what removing a second factor does and asks for confirmation.
pub(crate) async fn confirm_second_factor(
    ObjectPage { viewer, object: member, .. }: ObjectPage<Member>,
) -> Result<Response, Failure> {
    let effects = [
        "From then on, a password or a sign-in link is enough to sign in. Make sure that the request really comes from the member.",
        "The events record who removed it.",
    ];
    let question = html! { "Remove the second factor of " strong { bdi { (member.name) } } "?" };
    Ok(asked(&viewer, &member, "Remove second factor", &question, &effects))
}

pub(crate) async fn remove_second_factor(
    ObjectAct { app, viewer, object: member, .. }: ObjectAct<Member>,
) -> Result<Response, Failure> {
    if is_own(&viewer, &member) {
        return refuse(&app, &viewer, "This is you. Turn it off on your own page, with a code.").await;
    }
    let (account, actor) = (viewer.signed_in.account, viewer.signed_in.actor());
    app.management.remove_second_factor(account, &member, actor).await?;
    let line = format!("The second factor of {} was removed.", member.name);
    Ok(notice::done(&viewer, &format!("{PATH}/{}", member.id), &line))
}

/// Explains what removing a member does and asks for confirmation.
pub(crate) async fn confirm(
    ObjectPage { viewer, object: member, .. }: ObjectPage<Member>,
) -> Result<Response, Failure> {
    let effects =
        ["The member is immediately signed out everywhere.", "Keys that the member created keep working."];
    let question = html! { "Remove " strong { bdi { (member.name) } } "?" };
    Ok(asked(&viewer, &member, "Remove member", &question, &effects))
}

pub(crate) async fn remove(
    ObjectAct { app, viewer, object: member, .. }: ObjectAct<Member>,
) -> Result<Response, Failure> {
    let SignedIn { account, .. } = viewer.signed_in;
    if is_own(&viewer, &member) {
        return refuse(&app, &viewer, ONESELF).await;
    }
    let removed = app.management.remove_member(account, member.id, viewer.signed_in.actor()).await;
    done(&app, &viewer, removed, PATH, &format!("{} was removed.", member.name)).await
}

/// Redirects to a page that reports what was done, or shows the list with the reason why nothing changed.
pub(super) async fn done(
    app: &App,
    viewer: &Viewer,
    outcome: Result<(), Error<MemberRefused>>,
    path: &str,
    line: &str,
) -> Result<Response, Failure> {
    match outcome {
        Ok(()) => Ok(notice::done(viewer, path, line)),
        Err(Error::Refused(refused @ MemberRefused::LastOwner)) => {
            refuse(app, viewer, &sentence(&refused.to_string())).await
        }
        Err(other) => Err(other.into()),
    }
}

pub(super) async fn refuse(app: &App, viewer: &Viewer, reason: &str) -> Result<Response, Failure> {
    let again = whole(app, viewer, Some(reason), Entered::new(&Fields::default())).await?;
    Ok((StatusCode::CONFLICT, again).into_response())
}
