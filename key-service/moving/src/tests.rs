//! Plans of imports.

use std::collections::HashMap;

use shared::{money::NanoUsd, wire::MAX_METADATA};

use super::*;
use domain::{
    digest::{Digest, ForeignKey},
    group::{BadGroup, Group},
    key::{ApiKey, KeyPatch},
    ledger::histories::{START, account, group, key},
    settings::MetadataPatch,
};

/// Returns an import of a group and of two keys, the second in the group.
fn import() -> Import {
    let mut team = Group::new(group(1), START);
    team.external_id = Some("team".into());
    let imported = |n: u8, group: Option<&str>| ImportedKey {
        key: ApiKey::new(key(n), String::new(), START),
        digest: Digest::of(&[n]),
        group: group.map(str::to_owned),
    };
    let keys = vec![imported(1, None), imported(2, Some("team"))];
    Import { account: account(1), groups: vec![team], keys, most_keys: 10, most_groups: 10 }
}

fn present(owners: [DigestOwner; 2]) -> Present {
    Present { owners: owners.into(), ..Present::default() }
}

#[test]
fn an_import_makes_groups_and_keys_and_puts_keys_in_their_groups() {
    let plan = import().plan(&present([DigestOwner::None; 2])).unwrap();
    let made: Vec<_> = plan.keys.iter().map(|(key, _)| (key.id, key.spend.group)).collect();
    assert_eq!(made, [(key(1), None), (key(2), Some(group(1)))]);
    assert_eq!(plan.groups.iter().map(|group| group.id).collect::<Vec<_>>(), [group(1)]);
    assert!(plan.existing_keys.is_empty() && plan.existing_groups.is_empty());
}

#[test]
fn what_exists_stays_as_it_is() {
    let named = HashMap::from([("team".to_owned(), (group(7), Ok(())))]);
    let plan = import().plan(&Present { named, ..present([DigestOwner::Key, DigestOwner::None]) }).unwrap();
    assert_eq!((plan.existing_keys, plan.existing_groups), (vec![0], vec![0]));
    assert_eq!(plan.keys[0].0.spend.group, Some(group(7)), "a new key joins the group that exists");
}

#[test]
fn a_key_that_an_interrupted_import_left_out_gets_the_id_it_was_promised() {
    let plan = import().plan(&present([DigestOwner::Reserved(key(9)), DigestOwner::None])).unwrap();
    assert_eq!(plan.keys[0].0.id, key(9));
}

#[test]
fn an_import_is_refused_whole() {
    let refused = |import: Import, present: Present| import.plan(&present).unwrap_err();
    let taken = present([DigestOwner::None, DigestOwner::Other]);
    assert_eq!(refused(import(), taken), ImportRefused::Taken(1));
    let unknown = Import { groups: Vec::new(), ..import() };
    let expected = ImportRefused::BadGroup(1, BadGroup::Unknown);
    assert_eq!(refused(unknown, present([DigestOwner::None; 2])), expected);
    let named = HashMap::from([("team".to_owned(), (group(7), Err(BadGroup::Archived)))]);
    let archived = Present { named, ..present([DigestOwner::None; 2]) };
    assert_eq!(refused(import(), archived), ImportRefused::BadGroup(1, BadGroup::Archived));
    let full = Present { keys: 9, ..present([DigestOwner::None; 2]) };
    assert_eq!(refused(import(), full), ImportRefused::TooManyKeys);
    let full = Present { groups: 10, ..present([DigestOwner::None; 2]) };
    assert_eq!(refused(import(), full), ImportRefused::TooManyGroups);
}

#[test]
fn a_repeated_import_fits_an_account_that_is_full() {
    let named = HashMap::from([("team".to_owned(), (group(7), Err(BadGroup::Archived)))]);
    let all = Present { keys: 10, groups: 10, named, ..present([DigestOwner::Key; 2]) };
    assert_eq!(import().plan(&all).unwrap().existing_keys, [0, 1]);
}

#[test]
fn what_appears_twice_is_wrong() {
    let drafted = |place: &str, byte| DraftKey {
        place: place.into(),
        foreign: ForeignKey::new([byte; 32]),
        hint: None,
        is_revoked: false,
        used: NanoUsd::ZERO,
        settings: KeyPatch::default(),
        group: None,
    };
    let draft = Draft {
        groups: Vec::new(),
        keys: vec![drafted("line 1", 1), drafted("line 2", 2), drafted("line 3", 1)],
    };
    let wrong = draft.repeated();
    assert_eq!(wrong, [Wrong { place: "line 3".into(), reason: "repeats the key of line 1".into() }]);
}

#[test]
fn a_draft_becomes_a_key_with_what_it_spent_and_whether_it_works() {
    let metadata =
        MetadataPatch { changes: [("a".into(), Some("b".into()))].into(), ..MetadataPatch::default() };
    assert!(metadata.changes.len() <= MAX_METADATA);
    let draft = DraftKey {
        place: String::new(),
        foreign: ForeignKey::new([0xab; 32]),
        hint: None,
        is_revoked: true,
        used: NanoUsd::from_nanos(5),
        settings: KeyPatch { label: Some("x".into()), metadata, ..KeyPatch::default() },
        group: None,
    };
    let made = draft.key(key(1), START);
    assert_eq!((made.label.as_str(), made.hint.as_str()), ("x", "sha256:abab…abab"));
    assert_eq!((made.spend.budget.used, made.spend.revoked_at.is_some()), (NanoUsd::from_nanos(5), true));
    assert_eq!(made.metadata["a"], "b");
    let working = DraftKey { is_revoked: false, hint: Some("sk-...abcd".into()), ..draft }.key(key(1), START);
    assert_eq!((working.hint.as_str(), working.spend.revoked_at), ("sk-...abcd", None));
}
