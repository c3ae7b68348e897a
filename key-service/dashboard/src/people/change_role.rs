use axum::response::Response;
use maud::html;

use crate::people::{
    members::{ONESELF, PATH, done, is_own, refuse},
    roles::{fields, no_such_group, read},
};
use domain::member::{Member, Role};
use key_service_management::{Error, members::MemberRefused};
use key_service_page::{
    app::App,
    entry::{Entered, Fault, refused_form},
    failure::Failure,
    form::Fields,
    layout::{Section, hidden, page},
    object_page::{ObjectAct, ObjectPage},
    session::Viewer,
};
use key_service_settings::settings_form::offered;

pub(crate) async fn show(
    ObjectPage { app, viewer, object: member, .. }: ObjectPage<Member>,
) -> Result<Response, Failure> {
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
            p.lead { @if viewer.is_owner() { (ONESELF) } @else { "Only owners can do this. Your role is viewer." } }
            p { a.button href=(back) { "Back" } }
        } @else {
            p.lead { "Change the role of " strong { bdi { (member.name) } } ". The change takes effect at once, wherever the member is signed in." }
            ul {
                li { "An owner can change everything, including inviting and removing members – even you." }
                li { "A viewer sees everything and changes nothing." }
                li { "A lead creates, changes, rotates and revokes the API keys of one group and its subgroups, and sees their requests and spend. Only owners change the group's own limits." }
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

pub(crate) async fn change(
    ObjectAct { app, viewer, form, object: member, .. }: ObjectAct<Member>,
) -> Result<Response, Failure> {
    if is_own(&viewer, &member) {
        return refuse(&app, &viewer, ONESELF).await;
    }
    let refused = async |fault: &Fault| {
        Ok(refused_form(asked(&app, &viewer, &member, Entered::refused(&form, fault)).await?))
    };
    let role = match read(&form) {
        Ok(role) => role,
        Err(fault) => return refused(&fault).await,
    };
    let (account, actor) = (viewer.signed_in.account, viewer.signed_in.actor());
    let changed = app.management.change_role(account, member.id, role, actor).await;
    if let Err(Error::Refused(MemberRefused::NoSuchGroup)) = changed {
        return refused(&no_such_group()).await;
    }
    let article = if role == Role::Owner { "an" } else { "a" };
    let line = format!("{} is now {article} {}.", member.name, role.as_str());
    done(&app, &viewer, changed, &format!("{PATH}/{}", member.id), &line).await
}
