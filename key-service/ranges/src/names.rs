//! Names for the parts of a spend, for pages and files.

use std::collections::HashMap;

use maud::{Markup, html};
use shared::ids::{GroupId, KeyId};

use domain::{group::Group, key::ApiKey};
use key_service_management::{reach::AccountReach, spend::SpendPart};
use key_service_page::{
    app::App,
    failure::Failure,
    form::Fields,
    paths::{ACTIVITY, GROUPS, KEYS},
    show::{name_of, or_unnamed},
};

/// Names of the keys and groups that are parts of a spend.
pub(crate) struct PartNames {
    keys: HashMap<KeyId, ApiKey>,
    groups: HashMap<GroupId, Group>,
}

impl PartNames {
    /// Looks up the names of the keys and groups among these parts.
    pub(crate) async fn of(
        app: &App,
        reach: AccountReach,
        parts: impl Iterator<Item = &SpendPart>,
    ) -> Result<Self, Failure> {
        let (mut keys, mut groups) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                SpendPart::Key(id) => keys.push(*id),
                SpendPart::Group(Some(id)) => groups.push(*id),
                SpendPart::Model(_)
                | SpendPart::User(_)
                | SpendPart::Group(None)
                | SpendPart::OtherKeys
                | SpendPart::OtherGroups
                | SpendPart::OtherUsers
                | SpendPart::Upstream(_)
                | SpendPart::OtherBills => {}
            }
        }
        let keys = app.management.keys_by_id(reach, keys).await?;
        Ok(Self { keys, groups: app.management.groups_by_id(reach, groups).await? })
    }

    /// Returns a part's name; empty for a key without a label.
    pub(crate) fn text(&self, part: &SpendPart) -> String {
        match part {
            SpendPart::Model(model) => model.clone(),
            SpendPart::Key(id) => self.keys.get(id).map_or_else(String::new, |key| key.label.clone()),
            SpendPart::Group(Some(id)) => self.groups.get(id).map_or_else(|| id.to_string(), name_of),
            SpendPart::Group(None) => "No group".into(),
            SpendPart::User(user) => user.clone().unwrap_or_else(|| "No user".into()),
            SpendPart::OtherKeys => "Other keys".into(),
            SpendPart::OtherGroups => "Other groups".into(),
            SpendPart::OtherUsers => "Other users".into(),
            SpendPart::Upstream(upstream) => upstream.clone().unwrap_or_else(|| "Unknown upstream".into()),
            SpendPart::OtherBills => "Earlier requests".into(),
        }
    }

    pub(crate) fn shown(&self, part: &SpendPart) -> Markup {
        let text = self.text(part);
        match part {
            SpendPart::Key(_) | SpendPart::Group(Some(_)) => or_unnamed(&text),
            SpendPart::User(Some(_)) => html! { bdi { (text) } },
            SpendPart::Model(_)
            | SpendPart::User(None)
            | SpendPart::Group(None)
            | SpendPart::OtherKeys
            | SpendPart::OtherGroups
            | SpendPart::OtherUsers
            | SpendPart::Upstream(_)
            | SpendPart::OtherBills => html! { (text) },
        }
    }

    /// Renders a part's name, with a link to the part or to its requests.
    pub(crate) fn linked(&self, part: &SpendPart) -> Markup {
        let shown = self.shown(part);
        let requests = |name: &str, value: &str| {
            format!("{ACTIVITY}?{}", Fields::of([(name, value.to_owned())]).query())
        };
        let to = match part {
            SpendPart::Key(id) => self.keys.get(id).map(|key| format!("{KEYS}/{}", key.id)),
            SpendPart::Group(Some(id)) => self.groups.get(id).map(|group| format!("{GROUPS}/{}", group.id)),
            SpendPart::Model(model) => Some(requests("model", model)),
            SpendPart::User(Some(user)) => Some(requests("user", user)),
            SpendPart::Upstream(Some(upstream)) => Some(requests("upstream", upstream)),
            SpendPart::Group(None)
            | SpendPart::User(None)
            | SpendPart::OtherKeys
            | SpendPart::OtherGroups
            | SpendPart::OtherUsers
            | SpendPart::Upstream(None)
            | SpendPart::OtherBills => None,
        };
        let hint = match part {
            SpendPart::Key(id) => self.keys.get(id).map(|key| key.hint.as_str()),
            SpendPart::Model(_)
            | SpendPart::Group(_)
            | SpendPart::User(_)
            | SpendPart::OtherKeys
            | SpendPart::OtherGroups
            | SpendPart::OtherUsers
            | SpendPart::Upstream(_)
            | SpendPart::OtherBills => None,
        };
        html! {
            @match to { Some(to) => a href=(to) { (shown) }, None => (shown) }
            @if let Some(hint) = hint { p.under { code { (hint) } } }
        }
    }
}
