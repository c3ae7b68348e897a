//! Fuzz target of the records of management keys.

use prost::Message;
use shared_fuzz::{Examples, Input, fuzz};

use super::*;

/// Keys survive writing and reading.
#[test]
fn records_of_management_keys() {
    let at = Timestamp::from_millis(1_795_140_665_000);
    let id = ManagementKeyId::new(at, [1; 10]);
    let key = messages::ManagementKey {
        name: "ci".into(),
        hint: "fg_mgmt_1234…abcd".into(),
        scope: Scope::default().as_str().to_owned(),
        group: vec![1; 16],
        created_at: at.millis(),
        expires_at: Some(at.millis()),
        last_used_at: None,
        revoked_at: None,
    };
    assert!(read_key(id, key.clone()).is_some());
    fuzz(&Examples::of([key.encode_to_vec()]), |input: &Input| {
        if let Ok(message) = messages::ManagementKey::decode(input.bytes())
            && let Some(key) = read_key(id, message)
        {
            assert_eq!(read_key(id, write_key(&key)), Some(key));
        }
    });
}
