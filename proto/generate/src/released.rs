//! Services one release apart work together: the contract keeps everything that the last release had.

use std::{collections::BTreeSet, fs, path::Path};

/// Everything in the contract that a peer relies on: a line for each method, field and enumeration value.
macro_rules! walk {
    ($package:expr, $messages:expr, $enums:expr, $lines:expr, $nested:ident) => {
        for message in $messages {
            let name = format!("{}.{}", $package, message.name());
            for field in &message.field {
                let choice = field.oneof_index.map_or("", |index| {
                    let index = usize::try_from(index).unwrap_or_default();
                    message.oneof_decl[index].name()
                });
                $lines.insert(format!(
                    "{name}: {} = {} {} {} {} {choice}",
                    field.name(),
                    field.number(),
                    field.label().as_str_name(),
                    field.r#type().as_str_name(),
                    field.type_name()
                ));
            }
            $nested.push((name, message.nested_type.clone(), message.enum_type.clone()));
        }
        for values in $enums {
            for value in &values.value {
                let name = format!("{}.{}", $package, values.name());
                $lines.insert(format!("{name}: {} = {}", value.name(), value.number()));
            }
        }
    };
}

fn contract(proto: &Path) -> crate::Result<BTreeSet<String>> {
    let files = protox::compile([proto.join("keyservice/v1/key_service.proto")], [proto])?;
    let mut lines = BTreeSet::new();
    let mut nested = Vec::new();
    for file in &files.file {
        for service in &file.service {
            for method in &service.method {
                let stream = |is: bool| if is { "stream " } else { "" };
                lines.insert(format!(
                    "{}.{}: {} ({}{}) returns ({}{})",
                    file.package(),
                    service.name(),
                    method.name(),
                    stream(method.client_streaming()),
                    method.input_type(),
                    stream(method.server_streaming()),
                    method.output_type()
                ));
            }
        }
        walk!(file.package(), &file.message_type, &file.enum_type, lines, nested);
    }
    while let Some((package, messages, enums)) = nested.pop() {
        walk!(package, &messages, &enums, lines, nested);
    }
    Ok(lines.into_iter().map(|line| line.trim_end().to_owned()).collect())
}

/// Returns whether the contract has all that the last release had, and prints what is missing. Writes the list where there is none,
/// as after a release.
pub(crate) fn is_kept(proto: &Path, only_checks: bool) -> crate::Result<bool> {
    let (now, file) = (contract(proto)?, proto.join("released.txt"));
    if !file.exists() && !only_checks {
        let lines: Vec<_> = now.iter().map(String::as_str).collect();
        fs::write(&file, lines.join("\n") + "\n")?;
        println!("wrote {}", file.display());
    }
    let released = fs::read_to_string(&file)?;
    let missing: Vec<_> = released.lines().filter(|line| !now.contains(*line)).collect();
    for line in &missing {
        eprintln!("programs of the last release rely on this, which was removed: {line}");
    }
    // An empty list would hold the contract to nothing.
    Ok(missing.is_empty() && released.lines().count() > 100)
}
