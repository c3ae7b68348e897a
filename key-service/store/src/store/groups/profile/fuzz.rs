//! Fuzz target of the profiles of groups.

use prost::Message;
use shared_fuzz::{Examples, Input, fuzz};

use super::*;

/// Profiles survive writing and reading.
#[test]
fn profiles_of_groups() {
    let at = Timestamp::from_millis(1_795_140_665_000);
    let text = || [("a".to_owned(), "b".to_owned())].into_iter().collect();
    let budget = Some(messages::Budget { limit: Some(9), ..messages::Budget::default() });
    let key_defaults = messages::KeyDefaults { budget, expires_in_seconds: Some(3600), metadata: text() };
    let profile = GroupProfile {
        name: "team".into(),
        external_id: Some("t1".into()),
        metadata: text(),
        key_defaults: Some(key_defaults),
        created_at: at.millis(),
        keys: 3,
        children: 0,
        opening: 0,
    };
    let id = GroupId::new(at, [1; 10]);
    let read = |profile| from_profile(id, ledger::Group::default(), profile);
    fuzz(&Examples::of([profile.encode_to_vec()]), |input: &Input| {
        if let Ok(message) = GroupProfile::decode(input.bytes())
            && let Ok(group) = read(message)
        {
            assert_eq!(read(to_profile(&group)), Ok(group));
        }
    });
}
