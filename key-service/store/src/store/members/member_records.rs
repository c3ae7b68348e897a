//! Names and stored records of members.

use domain::member::Member;
use key_service_ledger::{
    names::RecordName,
    stored::{MemberName, MemberRecord},
};
use shared::ids::MemberId;

use crate::store::layout;

/// Names the record of a member.
pub(crate) fn member_name(id: MemberId) -> RecordName<MemberRecord> {
    layout::name(layout::MEMBERS, layout::tagged(b'm', id.as_bytes()))
}

/// Names the record that finds a member by name.
pub(crate) fn name_name(name: &str) -> RecordName<MemberName> {
    layout::name(layout::MEMBERS, layout::tagged(b'n', name.as_bytes()))
}

/// Encodes a member's record, which does not contain the id.
pub(crate) fn write_member(member: &Member) -> MemberRecord {
    let Member { id: _, name, role, password, created_at, last_link, second_factor } = member.clone();
    MemberRecord { name, role, password, created_at, last_link, second_factor }
}

/// Decodes the record of the member with this id.
pub(crate) fn read_member(id: MemberId, member: MemberRecord) -> Member {
    let MemberRecord { name, role, password, created_at, last_link, second_factor } = member;
    Member { id, name, role, password, created_at, last_link, second_factor }
}
