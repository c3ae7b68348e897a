//! People of accounts. Passwords are stored as hashes, and secrets of second factors are not stored.

mod attempts;
mod expiring;
pub(crate) mod member_records;
pub(crate) mod operators;
mod sign_in;

use domain::{
    event::{Act, EventKind},
    member::{Member, MemberChange},
    second_factor::SecondFactor,
};
use key_service_ledger::{
    Change, StoreError,
    messages::{self, IdList, MemberName},
};
use records::Name;
use shared::ids::{AccountId, MemberId};

use crate::{
    data::MemberCreated,
    store::{
        accounts::insert_id,
        base::Store,
        layout,
        members::member_records::{member_id, member_name, name_name, read_member, write_member},
    },
};

impl Store {
    /// Creates a member of an existing account with fewer than `most` members; repeating it changes nothing.
    pub async fn create_member(
        &self,
        account: AccountId,
        member: Member,
        most: u64,
        act: &Act,
    ) -> Result<MemberCreated, StoreError> {
        self.lanes.change(account, |change| add_member(change, account, &member, most, act)).await
    }

    /// The account's members, oldest first.
    pub async fn members(&self, account: AccountId) -> Result<Vec<Member>, StoreError> {
        let space = layout::space(account);
        let list = self.read().get::<IdList>(&space, list_name()).await?.unwrap_or_default();
        let ids: Vec<_> = list.ids.iter().map(|id| member_id(id)).collect::<Result<_, _>>()?;
        let members = self.read().get_all(&space, ids.iter().map(|id| member_name(*id)).collect()).await?;
        // A member may have been removed since the list was read.
        let members = ids.into_iter().zip(members).filter_map(|(id, member)| Some((id, member?)));
        members.map(|(id, member)| read_member(id, member)).collect()
    }

    /// Finds a member of the account by name, through an index.
    pub async fn member_named(&self, account: AccountId, name: &str) -> Result<Option<Member>, StoreError> {
        let space = layout::space(account);
        let Some(named) = self.read().get::<MemberName>(&space, name_name(name)).await? else {
            return Ok(None);
        };
        let id = member_id(&named.member)?;
        let member = self.read().get(&space, member_name(id)).await?;
        member.map(|member| read_member(id, member)).transpose()
    }

    /// Changes the named fields of a member. Another role writes an event. `false` if there is no such member.
    pub async fn update_member(
        &self,
        account: AccountId,
        id: MemberId,
        fields: MemberChange,
    ) -> Result<bool, StoreError> {
        let name = member_name(id);
        let update = |change: &mut Change<'_>| {
            let Some(member) = change.get(&name)? else { return Ok(false) };
            let member = read_member(id, member)?;
            member.role_event(&fields).into_iter().for_each(|event| change.event(event));
            change.put(&name, &write_member(&member.changed(fields.clone())));
            Ok(true)
        };
        self.lanes.change(account, update).await
    }

    /// Replaces the second factor of a member. `false` if it is no longer that of `member`; of several calls with the
    /// same code, one succeeds. Turning a second factor on or off writes an event.
    pub async fn replace_second_factor(
        &self,
        account: AccountId,
        member: &Member,
        after: Option<SecondFactor>,
        act: &Act,
    ) -> Result<bool, StoreError> {
        let name = member_name(member.id);
        let replace = |change: &mut Change<'_>| {
            let Some(found) = change.get(&name)? else { return Ok(false) };
            let found = read_member(member.id, found)?;
            if found.second_factor != member.second_factor {
                return Ok(false);
            }
            change.put(&name, &write_member(&Member { second_factor: after.clone(), ..found }));
            if let Some(kind) = member.second_factor_event(after.as_ref()) {
                change.event(act.event(0, None, None, kind));
            }
            Ok(true)
        };
        self.lanes.change(account, replace).await
    }

    /// Removes a member, and voids the member's links and sessions. `false` if there is none.
    pub async fn remove_member(
        &self,
        account: AccountId,
        id: MemberId,
        act: &Act,
    ) -> Result<bool, StoreError> {
        let records = self.some_records_of(account, id).await?;
        let name = member_name(id);
        let remove = |change: &mut Change<'_>| {
            let (found, list) = (change.get::<messages::Member>(&name)?, change.get::<IdList>(&list_name())?);
            let Some(found) = found else { return Ok(false) };
            let mut list = list.unwrap_or_default();
            list.ids.retain(|other| other != id.as_bytes());
            change.put(&list_name(), &list);
            change.remove(&name);
            change.remove(&name_name(&found.name));
            expiring::void_all(change.records(), id, &records);
            let removed = EventKind::MemberRemoved { member_id: id, name: found.name };
            change.event(act.event(0, None, None, removed));
            Ok(true)
        };
        self.lanes.change(account, remove).await
    }
}

/// Adds a member, unless the name is taken or the account has as many as allowed.
fn add_member(
    change: &mut Change<'_>,
    account: AccountId,
    member: &Member,
    most: u64,
    act: &Act,
) -> Result<MemberCreated, StoreError> {
    let (of_member, of_name) = (member_name(member.id), name_name(&member.name));
    change.presume_absent(&of_member);
    change.presume_absent(&of_name);
    let (money, list) = (change.account()?, change.get::<IdList>(&list_name())?);
    if money.is_none() {
        return Err(StoreError::no_account(account));
    }
    match change.get::<MemberName>(&of_name)? {
        // An earlier attempt of the same caller made the member.
        Some(named) if named.member == member.id.as_bytes() => return Ok(MemberCreated::Made),
        Some(_) => return Ok(MemberCreated::NameTaken),
        None => {}
    }
    let mut list = list.unwrap_or_default();
    if list.ids.len() as u64 >= most {
        return Ok(MemberCreated::TooMany);
    }
    if change.has_record(&of_member) {
        return Err(StoreError::Conflict(format!("{} has another name", member.id)));
    }
    insert_id(&mut list, member.id.as_bytes());
    change.put(&list_name(), &list);
    change.put(&of_member, &write_member(member));
    change.put(&of_name, &MemberName { member: member.id.as_bytes().to_vec() });
    change.event(act.event(0, None, None, member.invitation()));
    Ok(MemberCreated::Made)
}

fn list_name() -> Name {
    layout::name(layout::MEMBERS, *b"l")
}
