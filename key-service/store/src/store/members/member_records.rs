//! Names and messages of members' records.

use domain::{
    member::{LinkMaker, MadeLink, Member, PasswordHash, Role},
    second_factor::SecondFactor,
};
use key_service_ledger::{StoreError, messages};
use records::Name;
use shared::{
    ids::{GroupId, MemberId},
    time::Timestamp,
};

use crate::store::layout;

/// Name of the record of a member.
pub(crate) fn member_name(id: MemberId) -> Name {
    layout::name(layout::MEMBERS, layout::tagged(b'm', id.as_bytes()))
}

/// Name of the record of a member's name.
pub(crate) fn name_name(name: &str) -> Name {
    layout::name(layout::MEMBERS, layout::tagged(b'n', name.as_bytes()))
}

/// Reads the id of a member.
pub(crate) fn member_id(bytes: &[u8]) -> Result<MemberId, StoreError> {
    MemberId::from_slice(bytes).ok_or_else(|| StoreError::Damaged("the id of a member".into()))
}

/// Writes a member without its id.
pub(crate) fn write_member(member: &Member) -> messages::Member {
    let Member { id: _, name, role, password, created_at, last_link, second_factor } = member;
    let made = |MadeLink { by, at }: &MadeLink| messages::MadeLink { by: by.to_string(), at: at.millis() };
    messages::Member {
        name: name.clone(),
        role: role.as_str().to_owned(),
        password: password.as_ref().map(|PasswordHash(hash)| hash.clone()),
        created_at: created_at.millis(),
        last_link: last_link.as_ref().map(made),
        second_factor: second_factor.as_ref().map(SecondFactor::to_string),
        group: role.group().map(|group| group.as_bytes().to_vec()).unwrap_or_default(),
    }
}

/// Reads the member with this id.
pub(crate) fn read_member(id: MemberId, member: messages::Member) -> Result<Member, StoreError> {
    let messages::Member { name, role, password, created_at, last_link, second_factor, group } = member;
    let damaged = |what: &str| StoreError::Damaged(format!("{what} of {id}"));
    let group = Some(group).filter(|id| !id.is_empty());
    let group = group.map(|id| GroupId::from_slice(&id).ok_or_else(|| damaged("the group"))).transpose()?;
    let role = Role::parse(&role, group).ok_or_else(|| damaged("the role"))?;
    let made = |messages::MadeLink { by, at }| {
        let by = LinkMaker::parse(&by).ok_or_else(|| damaged("the last link"))?;
        Ok::<_, StoreError>(MadeLink { by, at: Timestamp::from_millis(at) })
    };
    let factor = |text: String| SecondFactor::parse(&text).ok_or_else(|| damaged("the second factor"));
    Ok(Member {
        id,
        name,
        role,
        password: password.map(PasswordHash),
        created_at: Timestamp::from_millis(created_at),
        last_link: last_link.map(made).transpose()?,
        second_factor: second_factor.map(factor).transpose()?,
    })
}
