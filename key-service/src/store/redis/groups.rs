//! Groups of API keys.
//!
//! What the ledger reads of a group is a field of the account's hash, what only owners read a hash of texts. Changes by
//! owners are computed from what was read, and written unless a revision has changed since: that of the group, and that of
//! the account's groups where a rule looks at several.

use async_trait::async_trait;
use redis::{cmd, pipe};
use shared::ids::{AccountId, GroupId};

use super::{
    Redis,
    idempotency::idempotency_record,
    records::{self, Fields, amount, damaged},
    script::Arguments,
    turns::ChangeTurn,
};
use crate::store::{GroupCreated, GroupPage, GroupUpdated, Groups, Idempotency, Order, Page, StoreError};
use domain::{
    event::{Act, EventKind},
    group::{self, BadGroup, Group, GroupPatch, NewGroup},
    key::ApiKey,
    ledger::{self, Rotation},
};

/// Groups read per round trip of a listing.
const READ_AT_ONCE: usize = 500;
/// Field of an account with the revision of the groups.
const REVISION: &str = "groups";

/// Judgement of a group, and the revision of the account's groups at that time.
pub(super) struct Judged {
    pub(super) of: Result<(), BadGroup>,
    pub(super) revision: String,
}

/// Revision of a key or a group.
pub(super) struct Revision {
    /// The number, as compared by the scripts.
    pub(super) number: String,
    /// Groups before the present group, each followed by a blank.
    pub(super) past: String,
}

impl Revision {
    /// The groups before the present one, once it is this one no more.
    pub(super) fn past_with(&self, group: GroupId) -> String {
        let group = group.to_string();
        if self.past.contains(&group) { self.past.clone() } else { format!("{}{group} ", self.past) }
    }
}

impl Judged {
    /// What a script is told: 1 for a refusal.
    pub(super) fn refusal(&self) -> &'static str {
        if self.of.is_err() { "1" } else { "" }
    }
}

#[async_trait]
impl Groups for Redis {
    async fn create_group(
        &self,
        NewGroup { account, group, most }: NewGroup,
        idempotency: Option<Idempotency>,
        act: &Act,
    ) -> Result<GroupCreated, StoreError> {
        let event = act.event(0, None, Some(group.id), group.creation(act.at));
        let mut turn = self.turn_in(account, group.id, group.spend.parent).await?;
        loop {
            turn.attempt().await?;
            let judged = self.may_have_parent(account, group.id, group.spend.parent).await?;
            let mut arguments = Arguments::keys([
                self.key_space.account(account),
                self.key_space.groups(account),
                self.key_space.external_ids(account),
                self.key_space.group(account, group.id),
                self.idempotency_name(account, idempotency.as_ref()),
            ]);
            if let Some(parent) = group.spend.parent {
                arguments.key(self.key_space.group(account, parent));
            }
            let arguments = arguments
                .with(records::group_field(group.id))
                .with(group.id.to_string())
                .with(group.external_id.as_deref().unwrap_or_default())
                .with(records::write_group_spend(&group.spend))
                .with(most.to_string())
                .with_all(idempotency_record(idempotency.as_ref()).into())
                .with(judged.revision.as_str())
                .with(judged.refusal())
                .with_all(records::write_group(&group));
            let arguments = self.with_event(arguments, account, Some(&event));
            let answer: Option<Vec<String>> = self.client.run(&self.scripts.create_group, &arguments).await?;
            let Some(answer) = answer else { return Err(StoreError::no_account(account)) };
            let existing = async |id| self.group(account, id).await?.ok_or_else(|| damaged("a group"));
            return Ok(match answer.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["new"] => {
                    self.confirm_account(account).await?;
                    GroupCreated::New(existing(group.id).await?)
                }
                ["existing", id] => {
                    let id = id.parse().map_err(|_| damaged("the group of an external id"))?;
                    GroupCreated::Existing(existing(id).await?)
                }
                ["replayed", id] => {
                    let id = id.parse().map_err(|_| damaged("an idempotency record"))?;
                    GroupCreated::Replayed(existing(id).await?)
                }
                ["reused"] => GroupCreated::Reused,
                ["bad_parent"] => GroupCreated::BadParent(judged.of.err().unwrap_or(BadGroup::Unknown)),
                ["full"] => GroupCreated::TooMany,
                ["stale"] => continue,
                _ => return Err(damaged("the answer to a creation")),
            });
        }
    }

    async fn group(&self, account: AccountId, id: GroupId) -> Result<Option<Group>, StoreError> {
        Ok(self.groups_of(account, &[id]).await?.pop())
    }

    async fn group_with_external_id(
        &self,
        account: AccountId,
        external_id: &str,
    ) -> Result<Option<Group>, StoreError> {
        let mut question = cmd("HGET");
        question.arg(self.key_space.external_ids(account)).arg(external_id);
        let id: Option<String> = self.client.ask(&question).await?;
        let Some(id) = id else { return Ok(None) };
        let id = id.parse().map_err(|_| damaged("the group of an external id"))?;
        self.group(account, id).await
    }

    /// Looks through the parents of all groups, unless the group's texts say that it has no children.
    async fn child_groups(&self, account: AccountId, parent: GroupId) -> Result<Vec<GroupId>, StoreError> {
        let (index, mut children, mut after) = (self.key_space.groups(account), Vec::new(), None);
        let mut left = self.children(account, parent).await?;
        while left > 0 {
            let ids: Vec<GroupId> = self.ids_behind(&index, after, Order::Ascending, READ_AT_ONCE).await?;
            let Some(last) = ids.last() else { break };
            let mut question = cmd("HMGET");
            question.arg(self.key_space.account(account));
            for id in &ids {
                question.arg(records::group_field(*id));
            }
            let records: Vec<Option<Vec<u8>>> = self.client.ask(&question).await?;
            for (id, record) in ids.iter().zip(records) {
                let spend = record.map(|record| records::read_group_spend(&record)).transpose()?;
                if spend.is_some_and(|spend| spend.parent == Some(parent)) {
                    children.push(*id);
                    left = left.saturating_sub(1);
                }
            }
            after = Some(*last);
        }
        Ok(children)
    }

    async fn groups(&self, account: AccountId, page: GroupPage) -> Result<Vec<Group>, StoreError> {
        let (index, mut groups, mut after) = (self.key_space.groups(account), Vec::new(), page.after);
        while groups.len() < page.limit {
            let wanted = (page.limit - groups.len()).min(READ_AT_ONCE);
            let ids: Vec<GroupId> = self.ids_behind(&index, after, page.order, wanted).await?;
            groups.extend(self.groups_of(account, &ids).await?);
            after = ids.last().copied();
            if ids.len() < wanted {
                break;
            }
        }
        Ok(groups)
    }

    async fn keys_of_group(
        &self,
        account: AccountId,
        group: GroupId,
        page: Page,
    ) -> Result<Vec<ApiKey>, StoreError> {
        self.keys_in_index(account, self.key_space.keys_in(account, group), page).await
    }

    async fn update_group(
        &self,
        account: AccountId,
        id: GroupId,
        patch: GroupPatch,
        act: &Act,
    ) -> Result<GroupUpdated, StoreError> {
        let mut turn = self.turn_in(account, id, patch.parent.flatten()).await?;
        loop {
            turn.attempt().await?;
            let revision = self.revision(&self.key_space.group(account, id), "past_parents").await?;
            let Some(group) = self.group(account, id).await? else { return Ok(GroupUpdated::NotFound) };
            let judged = self.may_have_parent(account, id, patch.parent.flatten()).await?;
            let (old, before) = (group.clone(), group.spend.parent);
            let group = match group.updated(&patch, judged.of, act.at) {
                Ok(group) => group,
                Err(reason) => return Ok(GroupUpdated::NotChanged(reason)),
            };
            let ledger::Group { budget, parent, .. } = &group.spend;
            let moved = (before != *parent).then_some((before, *parent));
            let governed = patch.parent.map(|_| judged.revision).unwrap_or_default();
            let mut texts = records::write_group(&group);
            if let Some((Some(parent), _)) = moved {
                texts.extend(["past_parents".to_owned(), revision.past_with(parent)]);
            }
            let rest = records::write_rest(*parent, Rotation::default(), budget.bounds.as_deref());
            let arguments = self
                .group_arguments(account, id, moved)
                .with(act.at.millis().to_string())
                .with_all(vec![revision.number, governed])
                .with(records::write_setting(budget.limit.map(amount)))
                .with("")
                .with(if rest.is_empty() { vec![0] } else { rest })
                .with_all(texts);
            let event = group.change(&old, act.at).map(|kind| act.event(0, None, Some(id), kind));
            let arguments = self.with_event(arguments, account, event.as_ref());
            let answer: Option<String> = self.client.run(&self.scripts.update_group, &arguments).await?;
            match answer.as_deref() {
                None => return Ok(GroupUpdated::NotFound),
                Some("changed") => {
                    self.confirm_account(account).await?;
                    let changed = self.group(account, id).await?;
                    return Ok(changed.map_or(GroupUpdated::NotFound, GroupUpdated::Group));
                }
                // The next attempt finds an archived group.
                Some(_) => {}
            }
        }
    }

    async fn archive_group(
        &self,
        account: AccountId,
        id: GroupId,
        act: &Act,
    ) -> Result<Option<Group>, StoreError> {
        let any = vec![String::new(); 3];
        let archived_at = act.at.to_whole_seconds().millis();
        let arguments = self.group_arguments(account, id, None).with(act.at.millis().to_string());
        let arguments = arguments.with_all(any).with(records::write_setting(Some(archived_at)));
        let event = act.event(0, None, Some(id), EventKind::GroupArchived {});
        let arguments = self.with_event(arguments, account, Some(&event));
        self.client.run::<Option<String>>(&self.scripts.update_group, &arguments).await?;
        self.confirm_account(account).await?;
        self.group(account, id).await
    }
}

impl Redis {
    /// Waits for the turn to change a group, or all groups of the account where the change puts the group into another.
    async fn turn_in(
        &self,
        account: AccountId,
        id: GroupId,
        parent: Option<GroupId>,
    ) -> Result<ChangeTurn<'_>, StoreError> {
        self.turn(if parent.is_some() { account.as_bytes() } else { id.as_bytes() }).await
    }

    /// Judges whether keys may be in a group, if any.
    pub(super) async fn takes_keys(
        &self,
        account: AccountId,
        id: Option<GroupId>,
    ) -> Result<Judged, StoreError> {
        let Some(id) = id else { return Ok(Judged { of: Ok(()), revision: String::new() }) };
        let (revision, found) = self.group_spend(account, id).await?;
        let parent = match found.as_ref().and_then(|group| group.parent) {
            Some(parent) => self.group_spend(account, parent).await?.1,
            None => None,
        };
        Ok(Judged { of: group::takes_keys(found.as_ref(), parent.as_ref()), revision })
    }

    /// Judges whether a group, which may not exist yet, may have this parent, if any.
    async fn may_have_parent(
        &self,
        account: AccountId,
        id: GroupId,
        parent: Option<GroupId>,
    ) -> Result<Judged, StoreError> {
        let Some(parent) = parent else { return Ok(Judged { of: Ok(()), revision: String::new() }) };
        let (revision, found) = self.group_spend(account, parent).await?;
        let has_children = self.children(account, id).await? > 0;
        Ok(Judged { of: group::may_be_parent((parent, found.as_ref()), id, has_children), revision })
    }

    /// Number of a group's child groups.
    async fn children(&self, account: AccountId, id: GroupId) -> Result<u64, StoreError> {
        let mut question = cmd("HGET");
        question.arg(self.key_space.group(account, id)).arg("children");
        let children: Option<u64> = self.client.ask(&question).await?;
        Ok(children.unwrap_or(0))
    }

    /// Reads the revision of the account's groups, and then the ledger's part of a group.
    async fn group_spend(
        &self,
        account: AccountId,
        id: GroupId,
    ) -> Result<(String, Option<ledger::Group>), StoreError> {
        let mut question = cmd("HMGET");
        question.arg(self.key_space.account(account)).arg(REVISION).arg(records::group_field(id));
        let (revision, record): (Option<String>, Option<Vec<u8>>) = self.client.ask(&question).await?;
        let found = record.map(|record| records::read_group_spend(&record)).transpose()?;
        Ok((revision.unwrap_or_else(|| "0".to_owned()), found))
    }

    /// Reads the revision of the texts under this name, and the groups before the present one.
    pub(super) async fn revision(&self, name: &str, past: &str) -> Result<Revision, StoreError> {
        let mut question = cmd("HMGET");
        question.arg(name).arg("revision").arg(past);
        let (number, past): (Option<String>, Option<String>) = self.client.ask(&question).await?;
        Ok(Revision { number: number.unwrap_or_else(|| "0".to_owned()), past: past.unwrap_or_default() })
    }

    /// Names for `scripts/update_group.lua`, and the group's field.
    fn group_arguments(
        &self,
        account: AccountId,
        id: GroupId,
        moved: Option<(Option<GroupId>, Option<GroupId>)>,
    ) -> Arguments {
        let mut arguments =
            Arguments::keys([self.key_space.account(account), self.key_space.group(account, id)]);
        if let Some((before, after)) = moved {
            for parent in [before, after] {
                let none = || self.key_space.account(account);
                arguments.key(parent.map_or_else(none, |parent| self.key_space.group(account, parent)));
            }
        }
        arguments.with(records::group_field(id))
    }

    /// Reads groups in the order of these ids, without missing groups.
    pub(super) async fn groups_of(
        &self,
        account: AccountId,
        ids: &[GroupId],
    ) -> Result<Vec<Group>, StoreError> {
        let mut read = pipe();
        for id in ids {
            read.cmd("HGET").arg(self.key_space.account(account)).arg(records::group_field(*id));
            read.cmd("HGETALL").arg(self.key_space.group(account, *id));
            read.cmd("ZCARD").arg(self.key_space.keys_in(account, *id));
        }
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let found: Vec<redis::Value> = self.client.ask_all(&read).await?;
        let groups = ids.iter().zip(found.chunks_exact(3)).map(|(id, parts)| {
            let [spend, texts, keys] = parts else { return Err(damaged("a group")) };
            let spend: Option<Vec<u8>> = redis::from_redis_value_ref(spend)?;
            let texts: Fields = redis::from_redis_value_ref(texts)?;
            records::read_group(*id, &texts, spend.as_deref(), redis::from_redis_value_ref(keys)?)
        });
        groups.filter_map(Result::transpose).collect()
    }
}
