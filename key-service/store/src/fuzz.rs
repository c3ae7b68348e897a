//! Fuzz targets of the nouns' records: any bytes are either a noun that survives writing and reading, or no noun.

use domain::{
    digest::Digest,
    member::{Link, Session},
};
use key_service_ledger::messages;
use prost::Message;
use records::{Name, Record, Revision, Set};
use shared::{
    ids::{GroupId, MemberId, SessionId},
    time::Timestamp,
};
use shared_fuzz::{Examples, Input, fuzz};

use crate::store::{
    ExpiringRecord, RecordKind,
    inspection::show::shown,
    members::member_records::{read_member, write_member},
};

const AT: Timestamp = Timestamp::from_millis(1_795_140_665_000);

fn member() -> messages::Member {
    let hex = "0f".repeat(32);
    messages::Member {
        name: "Ann".into(),
        role: "lead".into(),
        password: Some("$argon2id$v=19$x".into()),
        created_at: AT.millis(),
        last_link: Some(messages::MadeLink { by: "owner Bob".into(), at: AT.millis() }),
        second_factor: Some(format!("{} {hex} 7 {hex}", &hex[..32])),
        group: GroupId::new(AT, [2; 10]).as_bytes().to_vec(),
    }
}

#[test]
fn records_of_members() {
    let id = MemberId::new(AT, [1; 10]);
    assert!(read_member(id, member()).is_ok());
    fuzz(&Examples::of([member().encode_to_vec()]), |input: &Input| {
        if let Ok(message) = messages::Member::decode(input.bytes())
            && let Ok(member) = read_member(id, message)
        {
            assert_eq!(read_member(id, write_member(&member)), Ok(member));
        }
    });
}

/// Any bytes can be shown as a record of any set, and a password's hash never appears.
#[test]
fn shown_records() {
    let profile =
        messages::GroupProfile { name: "team".into(), keys: 3, ..messages::GroupProfile::default() };
    let webhook =
        messages::Webhook { url: "https://a.example/".into(), secret: vec![7; 32], ..Default::default() };
    let examples = [member().encode_to_vec(), profile.encode_to_vec(), webhook.encode_to_vec()];
    fuzz(&Examples::of(examples), |input: &Input| {
        let letters = b"aeklgtmnwphrs";
        let record = Record::new(Revision([7; 8]), 1, input.bytes());
        for table in 0..=28 {
            let key = [letters[input.choice(letters.len())]];
            let name = Name { set: Set { table, part: 0 }, key: key.as_slice().into() };
            let json = serde_json::to_string(&shown(&name, Some(&record))).unwrap();
            assert!(!json.contains("argon2id") || key != *b"m", "{json}");
        }
    });
}

/// Links and sessions survive writing and reading.
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
