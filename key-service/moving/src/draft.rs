use std::collections::HashMap;

use shared::{
    ids::{GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

use domain::{
    digest::ForeignKey,
    group::{Group, GroupPatch},
    key::{ApiKey, KeyPatch},
};

/// Keys and groups of another gateway, as exported.
#[derive(Debug, Default)]
pub struct Draft {
    /// Groups, each with its own external id.
    pub groups: Vec<DraftGroup>,
    /// Keys, each with its own plaintext.
    pub keys: Vec<DraftKey>,
}

#[derive(Debug)]
pub struct DraftGroup {
    /// Location in the export, for messages.
    pub place: String,
    /// Amount that the other gateway has billed.
    pub used: NanoUsd,
    pub settings: GroupPatch,
}

#[derive(Debug)]
pub struct DraftKey {
    /// Location in the export, for messages.
    pub place: String,
    pub foreign: ForeignKey,
    /// The part of the plaintext that may be shown, if known.
    pub hint: Option<String>,
    /// Whether the key no longer works.
    pub is_revoked: bool,
    /// Amount that the other gateway has billed.
    pub used: NanoUsd,
    pub settings: KeyPatch,
    /// External id of the key's group.
    pub group: Option<String>,
}

/// A row that cannot be imported, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub place: String,
    pub reason: String,
}

impl Draft {
    /// Finds keys and groups that appear more than once.
    pub fn repeated(&self) -> Vec<Wrong> {
        let mut seen: HashMap<&[u8], &str> = HashMap::new();
        let mut wrong = Vec::new();
        let groups = self.groups.iter().filter_map(|group| {
            Some((group.settings.external_id.as_ref()?.as_deref()?.as_bytes(), &group.place, "group"))
        });
        let keys = self.keys.iter().map(|key| (&key.foreign.as_bytes()[..], &key.place, "key"));
        for (name, place, what) in groups.chain(keys) {
            if let Some(first) = seen.insert(name, place) {
                wrong.push(Wrong { place: place.clone(), reason: format!("repeats the {what} of {first}") });
            }
        }
        wrong
    }
}

impl DraftGroup {
    pub fn group(&self, id: GroupId, now: Timestamp) -> Group {
        let mut group = Group::new(id, now.to_whole_seconds()).with(&self.settings, now);
        group.spend.budget.used = self.used;
        group
    }
}

impl DraftKey {
    /// Makes the key with this id, without a group.
    pub fn key(&self, id: KeyId, now: Timestamp) -> ApiKey {
        let hint = self.hint.clone().unwrap_or_else(|| self.foreign.hint());
        let mut key = ApiKey::new(id, hint, now.to_whole_seconds()).with(&self.settings, now);
        key.spend.budget.used = self.used;
        if self.is_revoked { key.revoked(now.to_whole_seconds()) } else { key }
    }
}
