//! What belongs to a release beside the programs.

use std::{collections::BTreeSet, fs, process::Command};

use serde_json::Value;

use crate::documents::root;

#[test]
fn every_program_lists_what_it_is_made_of_with_licences_and_checksums() {
    let folder = tempfile::TempDir::new().unwrap();
    run("tests/tools/sbom.py", &[folder.path().to_str().unwrap()]);
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    for (program, linked, foreign) in [
        ("faregate", "rusqlite", "proptest"),
        ("inference-gateway", "hyper-rustls", "rusqlite"),
        ("key-service", "argon2", "tokenizers"),
        ("local-model", "tokenizers", "redis"),
    ] {
        let file = folder.path().join(format!("{program}.cdx.json"));
        let list: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        assert_eq!(list["metadata"]["component"]["version"], env!("CARGO_PKG_VERSION"));
        let crates = list["components"].as_array().unwrap();
        let names: BTreeSet<_> = crates.iter().map(|it| it["name"].as_str().unwrap()).collect();
        assert!(names.contains(linked) && !names.contains(foreign), "{program}: {names:?}");
        for it in crates {
            assert!(it["licenses"][0]["expression"].is_string(), "{program}: {it}");
            let is_own = root().join(it["name"].as_str().unwrap()).is_dir()
                || it["name"].as_str().unwrap().ends_with("-domain");
            let checksum = it["hashes"][0]["content"].as_str();
            assert!(is_own || checksum.is_some_and(|sum| lock.contains(sum)), "{program}: {it}");
        }
        let references: BTreeSet<_> = crates.iter().map(|it| &it["bom-ref"]).map(Value::to_string).collect();
        for edge in list["dependencies"].as_array().unwrap() {
            let ends = edge["dependsOn"].as_array().unwrap();
            assert!(ends.iter().all(|end| references.contains(&end.to_string())), "{program}: {edge}");
        }
    }
}

#[test]
fn the_changelog_has_the_version_of_the_programs_and_what_is_to_come() {
    let text = include_str!("../../../CHANGELOG.md");
    let versions: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(versions[0], "Unreleased");
    assert!(versions[1].starts_with(env!("CARGO_PKG_VERSION")), "{versions:?}");
    assert_eq!(run("tests/tools/version.py", &[]).trim(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_compiler_is_the_same_in_a_checkout_in_the_images_and_in_the_manifest() {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let toolchain = read("rust-toolchain.toml");
    let channel =
        toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap().trim_matches('"');
    assert!(read("Dockerfile").contains(&format!("FROM rust:{channel}-slim-")), "{channel}");
    let oldest = read("Cargo.toml");
    let oldest =
        oldest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap().trim_matches('"');
    assert!(channel.starts_with(&format!("{oldest}.")), "{channel} is no {oldest}");
    assert!(read("LICENSE").contains("Apache License"));
}

#[test]
fn every_crate_has_the_version_of_the_workspace() {
    let metadata = Command::new("cargo")
        .args(["metadata", "--locked", "--offline", "--no-deps", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    for package in metadata["packages"].as_array().unwrap() {
        assert_eq!(package["version"], env!("CARGO_PKG_VERSION"), "{}", package["name"]);
    }
}

#[test]
fn the_image_and_the_release_are_built_in_the_same_way() {
    let (dockerfile, script) = (read("Dockerfile"), read("tests/tools/reproducible.sh"));
    let (trained, tool) = (read("tests/tools/pgo.sh"), read("tests/tools/auditable.sh"));
    let version = |text: &str| {
        let (_, rest) = text.split_once("cargo-auditable@").unwrap();
        rest.split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(version(&dockerfile), version(&tool));
    // A profile fits what the same command builds.
    for text in [&dockerfile, &script, &trained] {
        for part in ["cargo auditable build", "--locked", "--target \"$host\"", "-Cprofile-use="] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    for text in [&dockerfile, &script] {
        for place in ["=/faregate", "=/cargo"] {
            assert!(text.contains(place), "{place}: {text}");
        }
    }
    assert!(dockerfile.contains("tests/tools/pgo.sh profile"), "the image has a profile of its own");
    for name in ["auditable.sh", "pgo.sh", "reproducible.sh"] {
        run("/bin/sh", &["-n", &format!("tests/tools/{name}")]);
    }
    run("/bin/sh", &["-n", "deploy/release.sh"]);
}

#[test]
fn the_table_of_scaling_is_what_the_script_computes() {
    let computed = run("bench/scaling.py", &[]);
    assert!(computed.lines().count() > 8 && read("docs/scaling.md").contains(&computed), "{computed}");
}

/// Runs a program at the root of the workspace, and returns what it prints.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(root().join(program)).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}
