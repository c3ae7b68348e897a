//! Members: invitations, rights, sign-in links, and removal.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Redirect, Response},
};
use http::StatusCode;
use maud::{Markup, html};
use shared::ids::MemberId;

use super::{
    Desk,
    failure::{Failure, sentence},
    layout::{Section, hidden, page, problem},
    session::{Act, OwnerAct, Viewer},
    show::{copyable, time},
};
use crate::{
    cli::link,
    management::{
        Error,
        members::{MAX_MEMBER_NAME_CHARS, MemberRefused, SignedIn, Token},
    },
};
use domain::member::{LinkMaker, Member, Role};

/// Path of this page.
const PATH: &str = "/dashboard/members";

/// Lists the members.
pub(super) async fn list(State(desk): State<Desk>, viewer: Viewer) -> Result<Response, Failure> {
    whole(&desk, &viewer, "", None).await
}

async fn whole(
    desk: &Desk,
    viewer: &Viewer,
    entered: &str,
    wrong: Option<&str>,
) -> Result<Response, Failure> {
    let members = desk.management.members(viewer.signed_in.account).await?;
    let content = html! {
        p.lead { "Owners change everything. Viewers see everything and change nothing. Members see who made a sign-in link for them." }
        (problem(wrong))
        @if viewer.is_owner() {
            form.row.card method="post" action=(PATH) {
                (hidden(viewer))
                label { "Name" input name="name" required maxlength=(MAX_MEMBER_NAME_CHARS) value=(entered)
                    autocomplete="off" placeholder="ann@example.com"; }
                label { "Role" select name="role" {
                    option value="viewer" { "viewer" } option value="owner" { "owner" }
                } }
                button.primary { "Invite" }
            }
        }
        (table(viewer, &members))
    };
    Ok(page(viewer, Section::Members, "Members", &content))
}

fn table(viewer: &Viewer, members: &[Member]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Members" {
            table {
                thead { tr {
                    th scope="col" { "Name" } th.wide-only scope="col" { "Role" } th.wide-only scope="col" { "Password" }
                    th.wide-only scope="col" { "Since" } th scope="col" { span.hidden { "Actions" } }
                } }
                tbody {
                    @for member in members {
                        tr {
                            th scope="row" { bdi { (member.name) }
                                @if member.id == viewer.signed_in.member.id { " " span.badge { "you" } }
                                p.narrow-only { (member.role.as_str()) " · " @if member.password.is_some() { "with" } @else { "no" } " password" }
                                p.narrow-only { "since " (time(member.created_at)) } }
                            td.wide-only { (member.role.as_str()) }
                            td.wide-only { @if member.password.is_some() { "set" } @else { span.quiet { "none" } } }
                            td.wide-only { (time(member.created_at)) }
                            td.act { @if viewer.is_owner() { (actions(viewer, member)) } }
                        }
                    }
                }
            }
        }
    }
}

fn actions(viewer: &Viewer, member: &Member) -> Markup {
    let path = format!("{PATH}/{}", member.id);
    let other = if member.is_owner() { Role::Viewer } else { Role::Owner };
    let of = || html! { span.hidden { " " (member.name) } };
    html! {
        div.actions {
            form method="post" action={ (path) "/link" } { (hidden(viewer)) button { "Sign-in link" (of()) } }
            form method="post" action={ (path) "/role" } {
                (hidden(viewer))
                button name="role" value=(other.as_str()) { "Make " (other.as_str()) (of()) }
            }
            a.button.danger href={ (path) "/remove" } { "Remove" (of()) }
        }
    }
}

/// Makes a member, and shows a link to hand over.
pub(super) async fn invite(
    State(desk): State<Desk>,
    OwnerAct(Act { viewer, form }): OwnerAct,
) -> Result<Response, Failure> {
    let (name, role) = (form.get("name").trim(), Role::parse(form.get("role")).unwrap_or(Role::Viewer));
    match desk.management.invite(viewer.signed_in.account, name, role, viewer.signed_in.actor()).await {
        Ok((member, token)) => Ok(link_page(&viewer, &member, &token, "72 hours")),
        Err(Error::Refused(
            refused @ (MemberRefused::BadName | MemberRefused::NameTaken | MemberRefused::TooMany),
        )) => {
            let again = whole(&desk, &viewer, name, Some(&sentence(&refused.to_string()))).await?;
            Ok((StatusCode::UNPROCESSABLE_ENTITY, again).into_response())
        }
        Err(other) => Err(other.into()),
    }
}

fn link_page(viewer: &Viewer, member: &Member, token: &Token, within: &str) -> Response {
    let content = html! {
        p.lead { "Hand this link to " strong { bdi { (member.name) } } ". It signs in once, within " (within)
            ". The link before it is worth nothing any more." }
        (copyable("Sign-in link", &link(&viewer.browser.base(), token)))
        p { a.button href=(PATH) { "Back to the members" } }
    };
    page(viewer, Section::Members, "Sign-in link", &content)
}

/// Finds the member of a path in the account.
async fn named(desk: &Desk, viewer: &Viewer, id: &str) -> Result<Member, Failure> {
    let id: MemberId = id.parse().map_err(|_| Failure::NotFound)?;
    let members = desk.management.members(viewer.signed_in.account).await?;
    members.into_iter().find(|member| member.id == id).ok_or(Failure::NotFound)
}

/// Makes a link for a member to sign in with.
pub(super) async fn make_link(
    State(desk): State<Desk>,
    Path(id): Path<String>,
    OwnerAct(Act { viewer, .. }): OwnerAct,
) -> Result<Response, Failure> {
    let member = named(&desk, &viewer, &id).await?;
    let by = match &viewer.signed_in.member {
        own if own.id == member.id => LinkMaker::Member,
        owner => LinkMaker::Owner(owner.name.clone()),
    };
    let token = desk.management.sign_in_link(viewer.signed_in.account, &member, by).await?;
    Ok(link_page(&viewer, &member, &token, "15 minutes"))
}

/// Gives a member another role.
pub(super) async fn change_role(
    State(desk): State<Desk>,
    Path(id): Path<String>,
    OwnerAct(Act { viewer, form }): OwnerAct,
) -> Result<Response, Failure> {
    let member = named(&desk, &viewer, &id).await?;
    let role = Role::parse(form.get("role")).ok_or(Failure::NotFound)?;
    done(&desk, &viewer, desk.management.change_role(viewer.signed_in.account, member.id, role).await).await
}

/// Explains the effect of removing, before the member is removed.
pub(super) async fn confirm(
    State(desk): State<Desk>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let member = named(&desk, &viewer, &id).await?;
    let content = html! {
        p.lead { "Remove " strong { bdi { (member.name) } } "?" }
        ul {
            li { "Every browser in which this member is signed in is signed out at once." }
            li { "Keys that the member created go on working." }
        }
        @if viewer.is_owner() {
            form.buttons method="post" {
                (hidden(&viewer))
                button.danger { "Remove" }
                a.button href=(PATH) { "Keep" }
            }
        }
    };
    Ok(page(&viewer, Section::Members, "Remove a member", &content))
}

/// Removes a member.
pub(super) async fn remove(
    State(desk): State<Desk>,
    Path(id): Path<String>,
    OwnerAct(Act { viewer, .. }): OwnerAct,
) -> Result<Response, Failure> {
    let member = named(&desk, &viewer, &id).await?;
    let SignedIn { account, .. } = viewer.signed_in;
    let removed = desk.management.remove_member(account, member.id, viewer.signed_in.actor()).await;
    done(&desk, &viewer, removed).await
}

/// Back to the list, or the list with the reason why nothing was changed.
async fn done(
    desk: &Desk,
    viewer: &Viewer,
    outcome: Result<(), Error<MemberRefused>>,
) -> Result<Response, Failure> {
    match outcome {
        Ok(()) => Ok(Redirect::to(PATH).into_response()),
        Err(Error::Refused(refused @ MemberRefused::LastOwner)) => {
            let again = whole(desk, viewer, "", Some(&sentence(&refused.to_string()))).await?;
            Ok((StatusCode::CONFLICT, again).into_response())
        }
        Err(other) => Err(other.into()),
    }
}
