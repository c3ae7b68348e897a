//! Bulk actions on API keys: select them in a list, confirm, and then revoke, disable, enable or move them, or change
//! their expiry.

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use shared::{ids::KeyId, time::Timestamp};

use crate::api_keys::place::place;
use domain::key::{ApiKey, KeyPatch};
use key_service_management::{Error, Refused, governed::Governed as _};
use key_service_page::{
    app::App,
    entry::{Entered, Fault, refused_form},
    failure::{Failure, bad_group},
    form::Fields,
    layout::{Section, hidden, page},
    notice,
    pagination::ROWS_ON_PAGE,
    paths::KEYS as PATH,
    session::{Act, KeysAct, Viewer},
    show::or_unnamed,
};
use key_service_settings::settings_form::{self, offered};

/// Path of the page that asks for confirmation.
pub(crate) const CONFIRM: &str = "/dashboard/keys/many";
/// Path of the form that applies the action.
pub(crate) const APPLY: &str = "/dashboard/keys/many/apply";

/// Id of the form that the checkboxes in a table of keys belong to.
pub(crate) const FORM: &str = "many";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Revoke,
    Disable,
    Enable,
    Move,
    Extend,
}

impl Deed {
    const ALL: [Self; 5] = [Self::Extend, Self::Move, Self::Disable, Self::Enable, Self::Revoke];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Revoke => "revoke",
            Self::Disable => "disable",
            Self::Enable => "enable",
            Self::Move => "move",
            Self::Extend => "extend",
        }
    }

    const fn button(self) -> &'static str {
        match self {
            Self::Revoke => "Revoke",
            Self::Disable => "Disable",
            Self::Enable => "Enable",
            Self::Move => "Move",
            Self::Extend => "Change expiry",
        }
    }

    const fn past(self) -> &'static str {
        match self {
            Self::Revoke => "revoked",
            Self::Disable => "disabled",
            Self::Enable => "enabled",
            Self::Move => "moved",
            Self::Extend => "updated with the new expiry",
        }
    }

    fn parse(form: &Fields) -> Result<Self, Failure> {
        let named = Self::ALL.into_iter().find(|deed| deed.as_str() == form.get("deed"));
        named.ok_or_else(|| {
            Failure::BadRequest(
                "This form did not come from a page of this site. Open the page again and retry.".into(),
            )
        })
    }
}

/// Shows a table of keys with buttons for the selected rows.
pub(crate) fn form(viewer: &Viewer, table: &Markup) -> Markup {
    html! {
        (table)
        @if viewer.keeps_keys() {
            form.buttons.many id=(FORM) method="post" action=(CONFIRM) {
                (hidden(viewer))
                span.quiet.chosen { "Selected keys:" }
                @for deed in Deed::ALL {
                    button.danger[deed == Deed::Revoke] name="deed" value=(deed.as_str()) { (deed.button()) " …" }
                }
            }
        }
    }
}

/// Finds the selected keys. The member must reach all of them.
async fn chosen(app: &App, viewer: &Viewer, form: &Fields) -> Result<Vec<ApiKey>, Failure> {
    let ids = form.all("key");
    if ids.len() > ROWS_ON_PAGE {
        return Err(Failure::BadRequest(format!("Select at most {ROWS_ON_PAGE} keys at a time.")));
    }
    let ids: Result<Vec<KeyId>, _> = ids.into_iter().map(str::parse).collect();
    let ids = ids.map_err(|_| Failure::NotFound)?;
    let found = app.management.keys_by_id(viewer.reach(), ids.clone()).await?;
    if found.len() < ids.len() {
        return Err(Failure::NotFound);
    }
    Ok(ids.iter().filter_map(|id| found.get(id)).cloned().collect())
}

/// Lists the selected keys and asks for confirmation.
pub(crate) async fn confirm(
    State(app): State<App>,
    KeysAct(Act { viewer, form }): KeysAct,
) -> Result<Response, Failure> {
    let (deed, keys) = (Deed::parse(&form)?, chosen(&app, &viewer, &form).await?);
    if keys.is_empty() {
        return Ok(notice::done(&viewer, PATH, "Select keys in the list first."));
    }
    asked(&app, &viewer, deed, &keys, Entered::new(&Fields::default())).await
}

async fn asked(
    app: &App,
    viewer: &Viewer,
    deed: Deed,
    keys: &[ApiKey],
    entered: Entered<'_>,
) -> Result<Response, Failure> {
    let offered = offered(app, viewer).await?;
    let number = numbered(keys.len());
    let question = match deed {
        Deed::Revoke => format!("Revoke {number}?"),
        Deed::Disable => format!("Disable {number}?"),
        Deed::Enable => format!("Enable {number}?"),
        Deed::Move => format!("Move {number}?"),
        Deed::Extend => format!("Change the expiry of {number}?"),
    };
    let content = html! {
        ul.columns { @for key in keys { li { (or_unnamed(&key.label)) " " code { (key.hint) } } } }
        @if deed == Deed::Revoke {
            p { "Their next requests are refused on every server, and their streams are cut within five seconds. This cannot be undone." }
        }
        @if deed == Deed::Disable { p { "Their next requests are refused until you enable them again." } }
        form.stack method="post" action=(APPLY) {
            (hidden(viewer))
            input type="hidden" name="deed" value=(deed.as_str());
            @for key in keys { input type="hidden" name="key" value=(key.id.to_string()); }
            @match deed {
                Deed::Revoke | Deed::Disable | Deed::Enable => {},
                Deed::Move => (settings_form::group("group_id", "Group", "Its limits apply to the keys from then on.", entered, &offered)),
                Deed::Extend => (entered.instant("expires_at", "Expires", "In UTC. Leave empty to never expire.", &settings_form::later(offered.now))),
            }
            div.buttons {
                button.danger[deed == Deed::Revoke].primary[deed != Deed::Revoke] { (deed.button()) " " (number) }
                a.button href=(PATH) { "Cancel" }
            }
        }
    };
    Ok(page(viewer, Section::Keys, &question, &content))
}

/// Applies the action to each key.
pub(crate) async fn apply(
    State(app): State<App>,
    KeysAct(Act { viewer, form }): KeysAct,
) -> Result<Response, Failure> {
    let (deed, keys) = (Deed::parse(&form)?, chosen(&app, &viewer, &form).await?);
    let refused = async |fault: &Fault| {
        Ok(refused_form(asked(&app, &viewer, deed, &keys, Entered::refused(&form, fault)).await?))
    };
    let mut patch = match change(deed, &form) {
        Ok(patch) => patch,
        Err(fault) => return refused(&fault).await,
    };
    if let Some(patch) = &mut patch
        && let Some(fault) = place(&app, &viewer, patch, false).await?
    {
        return refused(&fault).await;
    }
    let mut done = 0;
    for key in &keys {
        let changed = match &patch {
            Some(patch) => ApiKey::update(viewer.by(&app), key.id, patch.clone()).await,
            None => ApiKey::end(viewer.by(&app), key.id).await,
        };
        match changed {
            Ok(_) => done += usize::from(key.spend.revoked_at.is_none()),
            // Someone revoked the key in the meantime.
            Err(Error::Refused(Refused::KeyRevoked)) => {}
            Err(Error::Refused(Refused::BadGroup(param, bad))) => {
                return refused(&Fault::of(param, bad_group(bad))).await;
            }
            Err(other) => return Err(other.into()),
        }
    }
    let line = match keys.len() - done {
        0 => format!("{} {}.", numbered(done), deed.past()),
        others => format!("{} {}. Already revoked: {others}.", numbered(done), deed.past()),
    };
    Ok(notice::done(&viewer, PATH, &line))
}

/// Reads the change from the form; `None` to revoke.
fn change(deed: Deed, form: &Fields) -> Result<Option<KeyPatch>, Fault> {
    Ok(match deed {
        Deed::Revoke => None,
        Deed::Disable | Deed::Enable => {
            Some(KeyPatch { disabled: Some(deed == Deed::Disable), ..KeyPatch::default() })
        }
        Deed::Move => {
            let group = form.filled("group_id").map(str::parse).transpose();
            let group =
                group.map_err(|_| Fault::of("group_id", "Enter the id of a group, such as grp_…."))?;
            Some(KeyPatch { group: Some(group), ..KeyPatch::default() })
        }
        Deed::Extend => {
            let at = form.filled("expires_at").map(|text| {
                let wrong = || Fault::of("expires_at", "Enter a date and time, such as 2027-12-31T23:59.");
                Timestamp::parse(text).ok_or_else(wrong)
            });
            Some(KeyPatch { expires_at: Some(at.transpose()?), ..KeyPatch::default() })
        }
    })
}

/// Writes `1 API key` or `2 API keys`.
fn numbered(keys: usize) -> String {
    if keys == 1 { "1 API key".into() } else { format!("{keys} API keys") }
}
