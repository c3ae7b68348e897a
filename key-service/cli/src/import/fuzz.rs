//! Fuzz targets for the files of other gateways.

use std::{fs, path::Path};

use shared_fuzz::{Examples, Input, fuzz};

use super::*;

/// Each key of a file is imported once, and each fault names its line.
#[test]
fn imported_lines() {
    let examples =
        fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/moving/keys.jsonl"));
    fuzz(&Examples::of([examples.unwrap()]), |input: &Input| match jsonl::read(input.bytes(), "FILE") {
        Ok(draft) => assert!(draft.repeated().is_empty() && draft.keys.len() <= input.bytes().len()),
        Err(wrong) => assert!(wrong.iter().all(|row| row.place.starts_with("FILE line "))),
    });
}

/// All rows of a table have the same columns, or the file is refused.
#[test]
fn imported_tables() {
    let moving = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/moving");
    let read = |name: &str| fs::read(moving.join(name)).unwrap();
    let examples =
        ["keys.csv", "teams.csv", "budgets.csv", "models.csv"].map(|name| format!("litellm-1.74-{name}"));
    let examples = examples.iter().map(|name| read(name)).chain([read("litellm-1.74.json")]);
    let folder = tempfile::tempdir().unwrap();
    fuzz(&Examples::of(examples), |input: &Input| {
        for name in ["export.csv", "export.json"] {
            let file = folder.path().join(name);
            fs::write(&file, input.bytes()).unwrap();
            let Ok(tables) = litellm::read(std::slice::from_ref(&file)) else { continue };
            let rows: usize = tables.iter().map(|table| table.rows.len()).sum();
            if let Ok((draft, _)) = key_service_moving::litellm::read(tables) {
                assert!(draft.keys.len() + draft.groups.len() <= rows);
            }
        }
    });
}
