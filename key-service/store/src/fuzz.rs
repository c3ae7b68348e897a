//! Fuzz targets for the nouns' records: any bytes are either refused, or decode to a value that stays the same when it
//! is written and read again.

use std::collections::BTreeMap;

use domain::{
    access::{Access, OperatorRights, Scope},
    alert::{AlertSubject, Channel, ReportedSubject, Rule, Sealed},
    digest::Digest,
    group::KeyDefaults,
    ledger::Budget,
    member::{Link, LinkMaker, MadeLink, PasswordHash, Role, Session},
    refused::RefusedCall,
    second_factor::{FactorId, SecondFactor},
    webhook::{Attempt, DisabledReason, ReceiverAnswer, WebhookUrl},
};
use key_service_ledger::stored::{
    AlertRecord, Credential, DeliveryAttempts, ExpiringValue, GroupProfile, IdempotencyKey, KeyProfile,
    LastAlertTest, ManagementKeyRecord, MemberRecord, OperatorKeyRecord, PendingDeliveries, PendingDelivery,
    RefusedDay, Restores, Rotated, UpstreamHours, WebhookRecord,
};
use minicbor::{Decode, Encode};
use records::{Name, Record, Revision, Set};
use shared::{
    ids::{AccountId, EventId, GroupId, KeyId, MemberId, Principal, RefusalId, SessionId},
    money::NanoUsd,
    stored,
    time::Timestamp,
    wire::OperatorScope,
};
use shared_fuzz::{Examples, Input, fuzz};

use crate::store::{ExpiringRecord, RecordKind, inspection::show::shown};

const AT: Timestamp = Timestamp::from_millis(1_795_140_665_000);

fn group() -> GroupId {
    GroupId::new(AT, [2; 10])
}

fn metadata() -> BTreeMap<String, String> {
    [("a".to_owned(), "b".to_owned())].into_iter().collect()
}

fn member() -> MemberRecord {
    let secret = Digest::from_bytes([7; 32]);
    MemberRecord {
        name: "Ann".into(),
        role: Role::Lead(group()),
        password: Some(PasswordHash("$argon2id$v=19$x".into())),
        created_at: AT,
        last_link: Some(MadeLink { by: LinkMaker::Owner("Bob".into()), at: AT }),
        second_factor: Some(SecondFactor {
            id: FactorId([1; 16]),
            secret,
            last_step: 7,
            recovery: vec![secret],
        }),
    }
}

fn key_profile() -> KeyProfile {
    let rotated = vec![Rotated { number: 1, digest: Digest::of(b"x") }];
    let (label, hint, opening) = ("ci".into(), "fg_api_1234…abcd".into(), NanoUsd::ZERO);
    KeyProfile { label, hint, created_at: AT, metadata: metadata(), opening, rotated }
}

fn group_profile() -> GroupProfile {
    let budget = Budget { limit: Some(NanoUsd::from_nanos(9)), ..Budget::default() };
    GroupProfile {
        name: "team".into(),
        external_id: Some("t1".into()),
        metadata: metadata(),
        key_defaults: KeyDefaults { budget, expires_in_seconds: Some(3600), metadata: metadata() },
        created_at: AT,
        keys: 3,
        children: 0,
        opening: NanoUsd::ZERO,
    }
}

fn management_key() -> ManagementKeyRecord {
    ManagementKeyRecord {
        name: "ci".into(),
        hint: "fg_mgmt_1234…abcd".into(),
        access: Access { scope: Scope::Read, group: Some(group()) },
        created_at: AT,
        expires_at: Some(AT),
        last_used_at: None,
        revoked_at: None,
    }
}

fn operator_key() -> OperatorKeyRecord {
    OperatorKeyRecord {
        name: "billing".into(),
        hint: "fg_oper_1234…abcd".into(),
        rights: OperatorRights {
            scopes: vec![OperatorScope::Read, OperatorScope::Credit],
            networks: Some(vec!["10.0.0.0/8".parse().unwrap()]),
            max_payment: NanoUsd::from_nanos(9),
        },
        created_at: AT,
        expires_at: Some(AT),
        last_used_at: None,
        revoked_at: None,
        ends_at: Some(AT),
    }
}

fn alert() -> AlertRecord {
    let key = KeyId::new(AT, [1; 10]);
    let id = shared::ids::AlertId::new(AT, [2; 10]);
    AlertRecord {
        label: "Budgets".into(),
        rule: Rule::LimitShare,
        threshold: Some(80),
        about: Some(AlertSubject::Key(key)),
        channel: Channel::Teams,
        shown: "https://example.com/…".into(),
        sealed: Sealed::new(
            &domain::digest::Pepper::new([1; 32]),
            id,
            &"https://example.com/x".into(),
            [1; 12],
        ),
        interval_hours: Some(1),
        enabled: true,
        created_at: AT,
        cursor: 9,
        looked_at: Some(AT),
        reported: vec![ReportedSubject { subject: AlertSubject::Key(key), at: AT }],
    }
}

fn webhook() -> WebhookRecord {
    WebhookRecord {
        url: WebhookUrl::parse("https://example.com/hook").unwrap(),
        types: Some(vec!["key.created".into()]),
        secret: Digest::of(b"x"),
        created_at: AT,
        disabled: Some((AT, DisabledReason::Gone)),
        cursor: 9,
    }
}

fn examples() -> Examples {
    let event = EventId::new(AT, [1; 10]);
    let answer = ReceiverAnswer::Status(204);
    let attempt = Attempt { event, kind: "key.created".into(), at: AT, milliseconds: 12, answer };
    let pending = PendingDelivery { event, number: Some(3), due_at: AT, attempts: 2 };
    let (account, key) = (AccountId::new(AT, [3; 10]), KeyId::new(AT, [4; 10]));
    let idempotency = IdempotencyKey { request: Digest::of(b"x"), made: [7; 16], expires_at: AT };
    let (id, reason, model) = (RefusalId::new(AT, [5; 10]), "rate_limited".into(), Some("m".into()));
    Examples::of([
        stored::write(&member()),
        stored::write(&key_profile()),
        stored::write(&group_profile()),
        stored::write(&management_key()),
        stored::write(&operator_key()),
        stored::write(&webhook()),
        stored::write(&alert()),
        stored::write(&LastAlertTest { at: AT }),
        stored::write(&DeliveryAttempts { attempts: vec![attempt] }),
        stored::write(&PendingDeliveries { deliveries: vec![pending] }),
        stored::write(&Credential::first(Principal::ApiKey(account, key))),
        stored::write(&idempotency),
        stored::write(&RefusedCall { id, key, reason, model, origin: None }),
    ])
}

fn is_written_as_read<T: PartialEq + Encode<()> + for<'b> Decode<'b, ()>>(bytes: &[u8]) {
    if let Ok(value) = stored::read::<T>(bytes) {
        assert!(stored::read::<T>(&stored::write(&value)).is_ok_and(|read| read == value), "{bytes:?}");
    }
}

#[test]
fn records_of_nouns() {
    fuzz(&examples(), |input: &Input| {
        let bytes = input.bytes();
        is_written_as_read::<MemberRecord>(bytes);
        is_written_as_read::<KeyProfile>(bytes);
        is_written_as_read::<GroupProfile>(bytes);
        is_written_as_read::<ManagementKeyRecord>(bytes);
        is_written_as_read::<OperatorKeyRecord>(bytes);
        is_written_as_read::<WebhookRecord>(bytes);
        is_written_as_read::<AlertRecord>(bytes);
        is_written_as_read::<LastAlertTest>(bytes);
        is_written_as_read::<DeliveryAttempts>(bytes);
        is_written_as_read::<PendingDeliveries>(bytes);
        is_written_as_read::<Credential>(bytes);
        is_written_as_read::<IdempotencyKey>(bytes);
        is_written_as_read::<RefusedCall>(bytes);
        is_written_as_read::<RefusedDay>(bytes);
        is_written_as_read::<ExpiringValue>(bytes);
        is_written_as_read::<Restores>(bytes);
        is_written_as_read::<UpstreamHours>(bytes);
    });
}

/// Checks that any bytes can be shown as a record of any set, and that a password's hash is never shown.
#[test]
fn shown_records() {
    fuzz(&examples(), |input: &Input| {
        let letters = b"aeklgtmnwphrs";
        let record = Record::new(Revision([7; 8]), 1, input.bytes());
        for table in 0..=30 {
            let key = [letters[input.choice(letters.len())]];
            let name = Name { set: Set { table, part: 0 }, key: key.as_slice().into() };
            let json = serde_json::to_string(&shown(&name, Some(&record))).unwrap();
            assert!(!json.contains("argon2id") || key != *b"m", "{json}");
        }
    });
}

/// Checks that links and sessions stay the same when they are written and read again.
#[test]
fn sign_ins() {
    let id = SessionId::new(AT, [2; 10]);
    let examples = [
        "- operator".to_owned(),
        format!("{} owner Ann van  der B", "0f".repeat(32)),
        format!("{id} -5 1795140665000 link owner Ann\nMozilla/5.0 (X11) \n x\n192.0.2.1"),
    ];
    fuzz(&Examples::of(examples), |input: &Input| {
        let record = |kind| ExpiringRecord {
            kind,
            name: Digest::of(b"secret"),
            member: MemberId::new(AT, [1; 10]),
            expires_at: AT,
            value: input.text().into_owned(),
        };
        if let Ok(link) = Link::try_from(record(RecordKind::Link)) {
            assert_eq!(Link::try_from(ExpiringRecord::from(link.clone())), Ok(link));
        }
        if let Ok(session) = Session::try_from(record(RecordKind::Session)) {
            assert_eq!(Session::try_from(ExpiringRecord::from(session.clone())), Ok(session));
        }
    });
}
