//! Roles of members: form fields, and how pages show them.

use std::collections::HashMap;

use maud::{Markup, html};
use shared::{ids::GroupId, text::sentence};

use domain::{
    group::Group,
    member::{Member, Role},
};
use key_service_management::members::MemberRefused;
use key_service_page::{
    app::App,
    entry::{Entered, Fault},
    failure::Failure,
    form::Fields,
    session::Viewer,
    show::name_of,
};
use key_service_settings::settings_form::{self, Offered};

/// Roles to choose from. The first is the default.
const ROLES: [&str; 3] = ["viewer", "lead", "owner"];

/// Renders fields for the role and, if there are groups, for the group that a lead manages.
pub(super) fn fields(entered: Entered<'_>, offered: &Offered) -> Markup {
    html! {
        (entered.field("role", "Role", "", |entry| html! {
            select id=(entry.name) name=(entry.name) aria-describedby=[&entry.described] aria-invalid=[entry.invalid] {
                @for role in ROLES { option value=(role) selected[entry.value == role] { (role) } }
            }
        }))
        @if !offered.groups.is_empty() { (settings_form::group("group_id", "Group", "For a lead only.", entered, offered)) }
    }
}

pub(super) fn read(form: &Fields) -> Result<Role, Fault> {
    let group = form.filled("group_id").map(str::parse).transpose();
    let group = group.map_err(|_| Fault::of("group_id", "Enter the id of a group, such as grp_…."))?;
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

/// Finds the groups that the members lead.
pub(super) async fn groups_of(
    app: &App,
    viewer: &Viewer,
    members: &[Member],
) -> Result<HashMap<GroupId, Group>, Failure> {
    let led = members.iter().filter_map(|member| member.role.group()).collect();
    Ok(app.management.groups_by_id(viewer.reach(), led).await?)
}

/// Shows a role and, for a lead, the group.
pub(super) fn shown(role: Role, groups: &HashMap<GroupId, Group>) -> Markup {
    html! {
        (role.as_str())
        @if let Some(id) = role.group() {
            " of "
            @match groups.get(&id) { Some(group) => bdi { (name_of(group)) }, None => code { (id) } }
        }
    }
}

pub(super) const fn rights(role: Role) -> &'static str {
    match role {
        Role::Owner => "Owners can change everything.",
        Role::Viewer => "Viewers can see everything and change nothing.",
        Role::Lead(_) => {
            "A lead creates, changes and revokes the API keys of the group and sees nothing else."
        }
    }
}
