//! The committed messages match `proto/store`, and can be shown as JSON without secrets.

use std::{error::Error, fs, path::Path};

/// Fields that are never shown: secrets, their digests and hashes.
const SECRETS: [&str; 8] = [
    ".store.v1.Webhook.secret",
    ".store.v1.Member.password",
    ".store.v1.Member.second_factor",
    ".store.v1.KeyProfile.Rotated.digest",
    ".store.v1.IdempotencyKey.request",
    ".store.v1.ExpiringRecord.value",
    ".store.v1.LatestLink.digest",
    ".store.v1.PepperRecord.record",
];

/// `TYPE_BYTES` of a field's descriptor.
const BYTES: i32 = 12;
/// `LABEL_REPEATED` of a field's descriptor.
const REPEATED: i32 = 3;

#[test]
fn the_generated_messages_are_those_of_the_proto_files() -> Result<(), Box<dyn Error>> {
    let ledger = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = ledger.join("../../proto");
    let folder = tempfile::tempdir()?;
    let entries = fs::read_dir(root.join("store/v1"))?;
    let mut protos = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    protos.sort();
    let files = protox::compile(&protos, [&root])?;
    let mut generator = tonic_prost_build::configure()
        .type_attribute(".", "#[derive(serde::Serialize)]")
        .type_attribute(".", "#[serde(rename_all = \"snake_case\")]");
    let mut messages: Vec<_> = files
        .file
        .iter()
        .flat_map(|file| &file.message_type)
        .map(|message| (format!(".store.v1.{}", message.name()), message))
        .collect();
    let mut secrets = 0;
    while let Some((path, message)) = messages.pop() {
        let nested = message.nested_type.iter();
        messages.extend(nested.map(|nested| (format!("{path}.{}", nested.name()), nested)));
        for field in &message.field {
            let path = format!("{path}.{}", field.name());
            let how = match (field.r#type, field.label) {
                _ if SECRETS.contains(&&*path) => {
                    secrets += 1;
                    "hidden"
                }
                (Some(BYTES), Some(REPEATED)) => "hex_list",
                (Some(BYTES), _) => "hex",
                _ => continue,
            };
            let attribute = format!("#[serde(serialize_with = \"crate::show::{how}\")]");
            generator = generator.field_attribute(path, attribute);
        }
    }
    assert_eq!(secrets, SECRETS.len(), "a secret's field is gone");
    generator.out_dir(folder.path()).compile_fds(files.clone())?;
    let generated = fs::read_to_string(folder.path().join("store.v1.rs"))?;
    let committed = ledger.join("src/messages.rs");
    if generated != fs::read_to_string(&committed).unwrap_or_default() {
        fs::write(&committed, generated)?;
        panic!("{} was not that of the proto files and is written anew: commit it", committed.display());
    }
    Ok(())
}
