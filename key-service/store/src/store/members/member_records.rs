//! Names and stored records of members.

use domain::member::Member;
use key_service_ledger::{
    names::RecordName,
    stored::{MemberName, MemberRecord},
};
use shared::ids::MemberId;

use crate::store::layout;

/// Name of the record of a member.
pub(crate) fn member_name(id: MemberId) -> RecordName<MemberRecord> {
    layout::name(layout::MEMBERS, layout::tagged(b'm', id.as_bytes()))
}

/// Name of the record of a member's name.
pub(crate) fn name_name(name: &str) -> RecordName<MemberName> {
    layout::name(layout::MEMBERS, layout::tagged(b'n', name.as_bytes()))
}

/// Makes the record of a member, without its id.
pub(crate) fn write_member(member: &Member) -> MemberRecord {
    let Member { id: _, name, role, password, created_at, last_link, second_factor } = member.clone();
    MemberRecord { name, role, password, created_at, last_link, second_factor }
}

/// Makes the member with this id.
pub(crate) fn read_member(id: MemberId, member: MemberRecord) -> Member {
    let MemberRecord { name, role, password, created_at, last_link, second_factor } = member;
    Member { id, name, role, password, created_at, last_link, second_factor }
}
