//! The members of accounts. Passwords are stored as hashes, and secrets of second factors are not stored.

mod attempts;
mod expiring;
pub(crate) mod member_records;
pub(crate) mod operators;
mod sign_in;

use domain::{
    event::{Act, EventKind},
    governed::Made,
    member::{Member, MemberChange, MemberRefused},
    second_factor::SecondFactor,
};
use key_service_ledger::{
    Change, StoreError,
    names::RecordName,
    stored::{IdList, MemberName, MemberRecord},
};
use shared::ids::{AccountId, MemberId};

use crate::{
    data::Idempotency,
    error::Error,
    store::{
        accounts::insert_id,
        base::{Store, damaged},
        idempotency::OnceRequest,
        layout,
        members::member_records::{member_name, name_name, read_member, write_member},
    },
};

impl Store {
    /// Creates a member in an existing account that has fewer than `most` members. Repeating this changes nothing.
    pub async fn create_member(
        &self,
        account: AccountId,
        member: Member,
        most: u64,
        act: &Act,
    ) -> Result<(), Error<MemberRefused>> {
        self.create_member_once(account, member, most, (None, act)).await.map(drop)
    }

    /// Creates a member once for each idempotency key.
    pub async fn create_member_once(
        &self,
        account: AccountId,
        member: Member,
        most: u64,
        (idempotency, act): (Option<Idempotency>, &Act),
    ) -> Result<Made<Member>, Error<MemberRefused>> {
        let request = OnceRequest { account, makes: *member.id.as_bytes(), idempotency };
        let find = |change: &mut Change<'_>, id: [u8; 16]| {
            let id = MemberId::from_slice(&id).ok_or_else(|| damaged("an id"))?;
            // A member may have been removed since.
            let found = change.get(&member_name(id))?.ok_or(MemberRefused::NotFound)?;
            Ok(read_member(id, found))
        };
        let create = |change: &mut Change<'_>| {
            add_member(change, account, &member, most, act)?;
            Ok(Made::New(member.clone()))
        };
        self.make_once(request, find, create).await
    }

    /// Lists the account's members, oldest first.
    pub async fn members(&self, account: AccountId) -> Result<Vec<Member>, StoreError> {
        let space = layout::space(account);
        let list = self.read().get::<IdList<MemberId>>(&space, list_name()).await?.unwrap_or_default();
        let names = list.ids.iter().map(|id| member_name(*id)).collect();
        let members = self.read().get_all(&space, names).await?;
        // Some members may have been removed after the list was read.
        let members = list.ids.into_iter().zip(members);
        Ok(members.filter_map(|(id, member)| Some(read_member(id, member?))).collect())
    }

    /// Finds a member of the account by name, through an index.
    pub async fn member_named(&self, account: AccountId, name: &str) -> Result<Option<Member>, StoreError> {
        let space = layout::space(account);
        let Some(named) = self.read().get::<MemberName>(&space, name_name(name)).await? else {
            return Ok(None);
        };
        let member = self.read().get(&space, member_name(named.member)).await?;
        Ok(member.map(|member| read_member(named.member, member)))
    }

    /// Changes some fields of a member. If the role changes, writes an event.
    pub async fn update_member(
        &self,
        account: AccountId,
        id: MemberId,
        fields: MemberChange,
    ) -> Result<(), Error<MemberRefused>> {
        let name = member_name(id);
        let update = |change: &mut Change<'_>| {
            let member = read_member(id, change.get(&name)?.ok_or(MemberRefused::NotFound)?);
            member.role_event(&fields).into_iter().for_each(|event| change.event(event));
            change.put(&name, write_member(&member.changed(fields.clone())));
            Ok(())
        };
        self.lanes.change(account, update).await
    }

    /// Replaces a member's second factor. Returns `false` if the second factor has changed after `member` was read. So
    /// of several calls with the same code, only one succeeds. If a second factor is turned on or off, writes an event.
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
            let found = read_member(member.id, found);
            if found.second_factor != member.second_factor {
                return Ok(false);
            }
            change.put(&name, write_member(&Member { second_factor: after.clone(), ..found }));
            if let Some(kind) = member.second_factor_event(after.as_ref()) {
                change.event(act.event(0, None, None, kind));
            }
            Ok(true)
        };
        self.lanes.change(account, replace).await
    }

    /// Removes a member, and voids the member's links and sessions.
    pub async fn remove_member(
        &self,
        account: AccountId,
        id: MemberId,
        act: &Act,
    ) -> Result<(), Error<MemberRefused>> {
        let records = self.some_records_of(account, id).await?;
        let name = member_name(id);
        let remove = |change: &mut Change<'_>| {
            let (found, list) =
                (change.get::<MemberRecord>(&name)?, change.get::<IdList<MemberId>>(&list_name())?);
            let found = found.ok_or(MemberRefused::NotFound)?;
            let mut list = list.unwrap_or_default();
            list.ids.retain(|other| *other != id);
            change.put(&list_name(), list);
            change.remove(&name);
            change.remove(&name_name(&found.name));
            expiring::void_all(change, id, &records);
            let removed = EventKind::MemberRemoved { member_id: id, name: found.name };
            change.event(act.event(0, None, None, removed));
            Ok(())
        };
        self.lanes.change(account, remove).await
    }
}

/// Adds a member, unless the name is taken or the account has too many members.
fn add_member(
    change: &mut Change<'_>,
    account: AccountId,
    member: &Member,
    most: u64,
    act: &Act,
) -> Result<(), Error<MemberRefused>> {
    let (of_member, of_name) = (member_name(member.id), name_name(&member.name));
    change.presume_absent(&of_member);
    change.presume_absent(&of_name);
    let (money, list) = (change.account()?, change.get::<IdList<MemberId>>(&list_name())?);
    if money.is_none() {
        return Err(StoreError::no_account(account).into());
    }
    match change.get::<MemberName>(&of_name)? {
        // An earlier attempt by the same caller created the member.
        Some(named) if named.member == member.id => return Ok(()),
        Some(_) => return Err(MemberRefused::NameTaken.into()),
        None => {}
    }
    let mut list = list.unwrap_or_default();
    if list.ids.len() as u64 >= most {
        return Err(MemberRefused::TooMany.into());
    }
    if change.has(&of_member) {
        return Err(StoreError::Conflict(format!("{} has another name", member.id)).into());
    }
    insert_id(&mut list, member.id);
    change.put(&list_name(), list);
    change.put(&of_member, write_member(member));
    change.put(&of_name, MemberName { member: member.id });
    change.event(act.event(0, None, None, member.invitation()));
    Ok(())
}

fn list_name() -> RecordName<IdList<MemberId>> {
    layout::name(layout::MEMBERS, *b"l")
}
