//! Roles of members: the fields of a form, how they are shown, and the page that changes one.

use std::collections::HashMap;

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use maud::{Markup, html};
use shared::ids::GroupId;

use super::{ONESELF, PATH, done, is_own, named, refuse};
use domain::{
    group::Group,
    member::{Member, Role},
};
use key_service_management::{Error, members::MemberRefused};
use key_service_page::{
    app::App,
    entry::{Entered, Fault},
    failure::{Failure, sentence},
    form::Fields,
    layout::{Section, hidden, page},
    session::{Act, OwnerAct, Viewer},
    show::name_of,
};
use key_service_settings::settings_form::{self, Offered, offered};

/// Roles of a form, by their names. The first is the default.
const ROLES: [&str; 3] = ["viewer", "lead", "owner"];

/// Makes the choice of a role, and of the group of a lead if there are groups.
pub(super) fn fields(entered: Entered<'_>, offered: &Offered) -> Markup {
    let group = ("Group", "Of a lead.");
    html! {
        (entered.field("role", ("Role", ""), |entry| html! {
            select id=(entry.name) name=(entry.name) aria-describedby=[&entry.described] aria-invalid=[entry.invalid] {
                @for role in ROLES { option value=(role) selected[entry.value == role] { (role) } }
            }
        }))
        @if !offered.groups.is_empty() { (settings_form::group("group_id", group, entered, offered)) }
    }
}

/// Reads a role, or finds the first fault.
pub(super) fn read(form: &Fields) -> Result<Role, Fault> {
    let group = form.filled("group_id").map(str::parse).transpose();
    let group = group.map_err(|_| Fault::of("group_id", "Give the id of a group, such as grp_…."))?;
    let name = form.filled("role").unwrap_or(ROLES[0]);
    Role::parse(name, group).ok_or_else(|| match (name, group) {
        ("lead", None) => Fault::of("group_id", "Choose the group that the member leads."),
        (_, Some(_)) => Fault::of("role", "Only a lead has a group."),
        (_, None) => Fault::of("role", "Choose a role."),
    })
}

pub(super) fn no_such_group() -> Fault {
    Fault::of("group_id", sentence(&MemberRefused::NoSuchGroup.to_string()))
}

/// Finds the groups that members lead.
pub(super) async fn groups_of(
    app: &App,
    viewer: &Viewer,
    members: &[Member],
) -> Result<HashMap<GroupId, Group>, Failure> {
    let led = members.iter().filter_map(|member| member.role.group()).collect();
    Ok(app.management.groups_by_id(viewer.reach(), led).await?)
}

/// Shows a role, with the group of a lead.
pub(super) fn shown(role: Role, groups: &HashMap<GroupId, Group>) -> Markup {
    html! {
        (role.as_str())
        @if let Some(id) = role.group() {
            " of "
            @match groups.get(&id) { Some(group) => bdi { (name_of(group)) }, None => code { (id) } }
        }
    }
}

/// Says what a role may do.
pub(super) const fn rights(role: Role) -> &'static str {
    match role {
        Role::Owner => "Owners can change everything.",
        Role::Viewer => "Viewers can see everything, and change nothing.",
        Role::Lead(_) => {
            "A lead creates, changes and revokes the API keys of the group, and sees nothing else."
        }
    }
}

/// Shows the form for another role.
pub(crate) async fn show(
    State(app): State<App>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let member = named(&app, &viewer, &id).await?;
    let group = member.role.group().map(|group| group.to_string()).unwrap_or_default();
    let present = [("role", member.role.as_str().to_owned()), ("group_id", group)];
    asked(&app, &viewer, &member, Entered::new(&Fields::of(present))).await
}

async fn asked(
    app: &App,
    viewer: &Viewer,
    member: &Member,
    entered: Entered<'_>,
) -> Result<Response, Failure> {
    let back = format!("{PATH}/{}", member.id);
    let content = html! {
        @if !viewer.is_owner() || is_own(viewer, member) {
            p.lead { @if viewer.is_owner() { (ONESELF) } @else { "Owners can do this. Your role is viewer." } }
            p { a.button href=(back) { "Back" } }
        } @else {
            p.lead { "Another role for " strong { bdi { (member.name) } } ". It takes effect at once, in every browser in which the member is signed in." }
            ul {
                li { "An owner can change everything, and invite and remove members: you as well." }
                li { "A viewer sees everything, and changes nothing." }
                li { "A lead creates, changes, rotates and revokes the API keys of one group and of the groups in it, and sees their requests and spend. The bounds of the group stay yours." }
            }
            form.stack method="post" {
                (hidden(viewer))
                (fields(entered, &offered(app, viewer).await?))
                div.buttons { button.primary { "Change role" } a.button href=(back) { "Cancel" } }
            }
        }
    };
    Ok(page(viewer, Section::Members, "Change role", &content))
}

/// Gives a member another role.
pub(crate) async fn change(
    State(app): State<App>,
    Path(id): Path<String>,
    OwnerAct(Act { viewer, form }): OwnerAct,
) -> Result<Response, Failure> {
    let member = named(&app, &viewer, &id).await?;
    if is_own(&viewer, &member) {
        return refuse(&app, &viewer, ONESELF).await;
    }
    let refused = async |fault: &Fault| {
        let again = asked(&app, &viewer, &member, Entered::refused(&form, fault)).await?;
        Ok((StatusCode::UNPROCESSABLE_ENTITY, again).into_response())
    };
    let role = match read(&form) {
        Ok(role) => role,
        Err(fault) => return refused(&fault).await,
    };
    let changed = app.management.change_role(viewer.signed_in.account, member.id, role).await;
    if let Err(Error::Refused(MemberRefused::NoSuchGroup)) = changed {
        return refused(&no_such_group()).await;
    }
    let article = if role == Role::Owner { "an" } else { "a" };
    let line = format!("{} is {article} {} now.", member.name, role.as_str());
    done(&app, &viewer, changed, (&format!("{PATH}/{}", member.id), &line)).await
}
