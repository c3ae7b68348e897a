//! Steps shared by cases about several nouns.

use shared::ids::{AccountId, ManagementKeyId, MemberId};

use crate::{
    store::{ExpiringRecord, ManagementKey, NewManagementKey, NumberedEvent, RecordKind, Store},
    suite::{after, digest},
};
use domain::{
    access::Access,
    ledger::histories::START,
    member::{Member, Role},
};

/// Returns a numbered management key.
pub(crate) fn management_key(n: u8) -> ManagementKey {
    ManagementKey {
        id: ManagementKeyId::new(START, [n; 10]),
        name: format!("Ops {n}"),
        hint: format!("fg_mgmt_{n}…"),
        access: Access::default(),
        created_at: after(n.into()),
        expires_at: None,
        last_used_at: None,
        revoked_at: None,
    }
}

/// Returns a numbered management key to create.
pub(crate) fn new_management_key(account: AccountId, n: u8) -> NewManagementKey {
    let (key, digest) = (management_key(n), digest(&format!("management {n}")));
    NewManagementKey { account, key, digest, most: 100 }
}

/// Returns a numbered member.
pub(crate) fn member(n: u8) -> Member {
    Member {
        id: MemberId::new(START, [n; 10]),
        name: format!("Member {n} ünïcode"),
        role: Role::Viewer,
        password: None,
        created_at: after(n.into()),
        last_link: None,
        second_factor: None,
    }
}

/// Returns a numbered session.
pub(crate) fn session(n: u8, member: MemberId) -> ExpiringRecord {
    let name = digest(&format!("session {n}"));
    ExpiringRecord { kind: RecordKind::Session, name, member, expires_at: after(100), value: n.to_string() }
}

/// Returns all kept events, oldest first.
pub(crate) async fn kept(store: &Store, account: AccountId) -> Vec<NumberedEvent> {
    store.events_after(account, 0, 10_000).await.unwrap().events
}
