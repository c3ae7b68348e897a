//! Writes the messages of both contracts: `generate`, or `generate --check`, which only reports what is not as it should be.

mod released;

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

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

fn main() -> Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let only_checks = std::env::args().nth(1).as_deref() == Some("--check");
    let (messages, fields) = store(&root)?;
    let written = [
        ("shared/rpc/src/v1.rs", contract(&root)?),
        ("key-service/ledger/src/messages.rs", messages),
        ("key-service/store/src/store/inspection/audit/tests/each_field/fields.txt", fields),
    ];
    let mut differs = false;
    for (name, text) in written {
        if fs::read_to_string(root.join(name)).unwrap_or_default() == text {
            continue;
        }
        if only_checks {
            eprintln!("{name} is not what the proto files say: run `make generate`");
            differs = true;
        } else {
            fs::write(root.join(name), text)?;
            println!("wrote {name}");
        }
    }
    differs |= !released::is_kept(&root.join("proto"), only_checks)?;
    Ok(if differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Messages and stubs of the contract between the services.
fn contract(root: &Path) -> Result<String> {
    let proto = root.join("proto");
    let files = protox::compile([proto.join("keyservice/v1/key_service.proto")], [&proto])?;
    let folder = tempfile::tempdir()?;
    // Few models have them, and every call about a hold carries a price.
    let builder = tonic_prost_build::configure().boxed(".keyservice.v1.Price.further");
    builder.out_dir(folder.path()).compile_fds(files)?;
    Ok(fs::read_to_string(folder.path().join("keyservice.v1.rs"))?)
}

/// Records of the store, and a line for each of their fields: message, number, name, type, message of the field, and whether it is
/// repeated.
fn store(root: &Path) -> Result<(String, String)> {
    let proto = root.join("proto");
    let entries = fs::read_dir(proto.join("store/v1"))?;
    let mut protos = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<PathBuf>>>()?;
    protos.sort();
    let files = protox::compile(&protos, [&proto])?;
    let mut generator = tonic_prost_build::configure()
        .type_attribute(".", "#[derive(serde::Serialize)]")
        .type_attribute(".", "#[serde(rename_all = \"snake_case\")]");
    let mut messages: Vec<_> = files
        .file
        .iter()
        .flat_map(|file| &file.message_type)
        .map(|message| (format!(".store.v1.{}", message.name()), message))
        .collect();
    let (mut secrets, mut lines) = (0, Vec::new());
    while let Some((path, message)) = messages.pop() {
        let nested = message.nested_type.iter();
        messages.extend(nested.map(|nested| (format!("{path}.{}", nested.name()), nested)));
        lines.push(format!("{path}\n"));
        for field in &message.field {
            let (kind, is_repeated) = (field.r#type.unwrap_or_default(), field.label == Some(REPEATED));
            let of = field.type_name.as_deref().unwrap_or("-");
            lines.push(format!("{path} {} {} {kind} {of} {is_repeated}\n", field.number(), field.name()));
            let path = format!("{path}.{}", field.name());
            let how = match (kind, is_repeated) {
                _ if SECRETS.contains(&&*path) => {
                    secrets += 1;
                    "hidden"
                }
                (BYTES, true) => "hex_list",
                (BYTES, false) => "hex",
                _ => continue,
            };
            let attribute = format!("#[serde(serialize_with = \"crate::show::{how}\")]");
            generator = generator.field_attribute(path, attribute);
        }
    }
    if secrets != SECRETS.len() {
        return Err("a field among SECRETS is gone".into());
    }
    lines.sort();
    let folder = tempfile::tempdir()?;
    generator.out_dir(folder.path()).compile_fds(files)?;
    Ok((fs::read_to_string(folder.path().join("store.v1.rs"))?, lines.concat()))
}
