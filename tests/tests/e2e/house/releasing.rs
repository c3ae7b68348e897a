//! The files of a release, except the programs.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use tests::harness::binary;

use crate::house::documents::root;

/// Repository that the files contain until the first release.
const PLACEHOLDER: &str = "faregate/faregate";

#[test]
fn every_program_lists_what_it_is_made_of_with_licences_and_checksums() {
    let folder = tempfile::TempDir::new().unwrap();
    run("tests/tools/sbom.py", &[folder.path().to_str().unwrap()]);
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    for (program, linked, foreign) in [
        ("faregate", "rusqlite", "proptest"),
        ("inference-gateway", "hyper-rustls", "rusqlite"),
        ("key-service", "argon2", "safetensors"),
        ("local-model", "safetensors", "redis"),
    ] {
        let file = folder.path().join(format!("{program}.cdx.json"));
        let list: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        assert_eq!(list["metadata"]["component"]["version"], env!("CARGO_PKG_VERSION"));
        let crates = list["components"].as_array().unwrap();
        let names: BTreeSet<_> = crates.iter().map(|it| it["name"].as_str().unwrap()).collect();
        assert!(names.contains(linked) && !names.contains(foreign), "{program}: {names:?}");
        for it in crates {
            assert!(it["licenses"][0]["expression"].is_string(), "{program}: {it}");
            let name = format!("\nname = {}\n", it["name"]);
            // For crates of this workspace, the lock file contains no source.
            let is_own =
                lock.split("[[package]]").any(|it| it.contains(&name) && !it.contains("\nsource = "));
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
    let text = include_str!("../../../../CHANGELOG.md");
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
    // A profile fits only programs that are built with the same command.
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
    let copied = read(".dockerignore");
    for name in ["auditable.sh", "notice.sh", "pgo.sh"] {
        assert!(copied.contains(&format!("!tests/tools/{name}\n")), "{name} is missing in the builder");
    }
    for name in ["auditable.sh", "notice.sh", "pgo.sh", "reproducible.sh"] {
        run("/bin/sh", &["-n", &format!("tests/tools/{name}")]);
    }
}

#[test]
fn workflows_run_pinned_actions_and_the_scripts_of_the_project_with_the_least_permissions() {
    let base = read("Dockerfile");
    let base = base.lines().find_map(|line| line.strip_prefix("FROM ")?.strip_suffix(" AS source")).unwrap();
    for (name, permissions) in [("check", r#"{"contents":"read"}"#), ("release", "{}")] {
        let workflow: Value =
            serde_saphyr::from_str(&read(&format!(".github/workflows/{name}.yml"))).unwrap();
        assert_eq!(workflow["permissions"].to_string(), permissions);
        for (job, it) in workflow["jobs"].as_object().unwrap() {
            let container = it["container"].as_str().or(it["container"]["image"].as_str());
            assert!(container.is_none_or(|image| image == base), "{job}: {container:?} is not {base}");
            let may = |what: &str| it["permissions"][what] == "write";
            assert_eq!(may("id-token") || may("contents"), job == "publish", "{job}");
            let waits = it["environment"] == "release";
            assert_eq!(
                may("packages") || may("contents"),
                waits,
                "{job}: a reviewer lets it push or publish"
            );
            for step in it["steps"].as_array().into_iter().flatten() {
                if let Some(action) = step["uses"].as_str() {
                    let (_, commit) = action.split_once('@').unwrap();
                    let is_commit =
                        commit.len() == 40 && commit.chars().all(|digit| digit.is_ascii_hexdigit());
                    assert!(is_commit, "{action}");
                    continue;
                }
                let command = step["run"].as_str().unwrap();
                let program = command.split(' ').next().unwrap();
                let is_preparation =
                    command.starts_with("apt-get update && ") || command.contains(" docker login ");
                assert!(is_preparation || root().join(program).is_file(), "{job}: {command}");
            }
        }
    }
}

#[test]
fn files_name_one_repository_and_its_registry_before_and_after_the_address_is_filled_in() {
    let files = [
        "README.md",
        "deploy/install.sh",
        "docker-compose.yml",
        "deploy/compose/one-process.yml",
        "deploy/helm/faregate/values.yaml",
        "deploy/prometheus/alerts.yml",
        "deploy/prometheus/alerts.test.yml",
    ];
    if address(root()) == PLACEHOLDER {
        let copy = tempfile::TempDir::new().unwrap();
        for file in files {
            fs::create_dir_all(copy.path().join(file).parent().unwrap()).unwrap();
            fs::copy(root().join(file), copy.path().join(file)).unwrap();
        }
        let documented = read("docs/releasing.md");
        let (_, block) = documented.split_once("```sh\nrepository=").unwrap();
        let (block, _) = block.split_once("```").unwrap();
        let mut fill = Command::new("sh");
        fill.args(["-euc", &format!("repository={block}")]).current_dir(copy.path());
        assert!(fill.status().unwrap().success());
        assert_eq!(address(copy.path()), "example/gateway");
    }
}

#[test]
fn a_dry_run_makes_a_release_that_installs_only_as_it_was_made() {
    let folder = tempfile::TempDir::new().unwrap();
    let dist = folder.path().join("dist");
    let archive = dry_run(folder.path(), &dist);
    assert_sums_cover_all(&dist);
    let notice = format!("faregate-{}/NOTICE", env!("CARGO_PKG_VERSION"));
    let notice = Command::new("tar").arg("-xzOf").arg(&archive).arg(notice).output().unwrap();
    let notice = String::from_utf8_lossy(&notice.stdout);
    assert!(notice.contains("\nrusqlite v") && notice.contains("Permission is hereby granted"), "{notice}");

    let into = folder.path().join("bin");
    let path = std::env::var("PATH").unwrap();
    let installed = install(&dist, &into, &path, &["faregate", "key-service"]);
    assert!(installed.status.success(), "{installed:?}");
    let version = Command::new(into.join("faregate")).arg("--version").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    assert_eq!(version.trim(), concat!("faregate ", env!("CARGO_PKG_VERSION")));
    assert!(into.join("key-service").is_file() && !into.join("local-model").exists());

    let other = folder.path().join("other-version");
    let named = install_with(&dist, &other, &path, &[("VERSION", "9.9.9")]);
    let said = String::from_utf8_lossy(&named.stderr).into_owned();
    assert!(!named.status.success() && said.contains("not version 9.9.9") && !other.exists(), "{said}");
    let this = concat!("v", env!("CARGO_PKG_VERSION"));
    assert!(install_with(&dist, &other, &path, &[("VERSION", this)]).status.success());
    fs::remove_dir_all(&other).unwrap();

    // Writes a cosign that does nothing but give the answers in this script.
    let tools = folder.path().join("tools");
    fs::create_dir(&tools).unwrap();
    let path = format!("{}:{path}", tools.display());
    let refused = |reason: &str| {
        let other = folder.path().join("refused");
        let output = install(&dist, &other, &path, &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(reason) && !other.exists(), "{reason}: {output:?}");
        said
    };
    script(&tools.join("cosign"), "echo \"$@\" >&2; exit 1");
    refused("SHA256SUMS.sigstore.json cannot be fetched");
    fs::write(dist.join("SHA256SUMS.sigstore.json"), "{}").unwrap();
    let asked = refused("not signed by a release of the repository");
    let signer =
        r"/\.github/workflows/release\.yml@refs/tags/v --certificate-oidc-issuer https://token.actions.";
    assert!(asked.contains(signer), "{asked}");
    let named = install_with(&dist, &folder.path().join("refused"), &path, &[("VERSION", "1.2.3")]);
    let asked = String::from_utf8_lossy(&named.stderr).into_owned();
    assert!(asked.contains(r"release\.yml@refs/tags/v1\.2\.3$ --certificate-oidc-issuer"), "{asked}");
    script(&tools.join("cosign"), "exit 0");
    let mut bytes = fs::read(&archive).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&archive, bytes).unwrap();
    refused("does not match its checksum");
    fs::write(dist.join("SHA256SUMS"), "").unwrap();
    refused("has no checksum for");
}

#[test]
fn an_installer_with_wget_alone_follows_no_redirection_away_from_tls() {
    let folder = tempfile::TempDir::new().unwrap();
    let tools = folder.path().join("tools");
    fs::create_dir(&tools).unwrap();
    for name in ["sh", "uname", "mktemp", "rm", "sed", "tr", "tail", "awk", "cut", "sha256sum", "cat", "echo"]
    {
        let found = Command::new("sh").args(["-c", &format!("command -v {name}")]).output().unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        let found = Path::new(found.trim());
        if found.is_absolute() {
            symlink(found, tools.join(name)).unwrap();
        }
    }
    // Writes a script that acts like GNU wget whose server redirects it. It records the address that it should fetch.
    let asked = folder.path().join("asked");
    let redirecting = |to: &str| {
        let text = format!(
            "case \"$*\" in *--version*) exit 0 ;; esac\nfor url; do :; done\necho \"$url\" >> {}\n\
             case \"$*\" in *--max-redirect=0*) echo \"  Location: {to}\" >&2; exit 8 ;; esac\nexit 1",
            asked.display()
        );
        script(&tools.join("wget"), &text);
        let mut install = Command::new("sh");
        install.arg(root().join("deploy/install.sh")).env("PATH", &tools);
        install.env("FROM", "https://mirror.example").env("INTO", folder.path().join("into"));
        let output = install.output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("https://mirror.example/SHA256SUMS cannot be fetched"), "{said}");
        let requests = fs::read_to_string(&asked).unwrap();
        fs::remove_file(&asked).unwrap();
        requests.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(redirecting("http://mirror.example/SHA256SUMS"), ["https://mirror.example/SHA256SUMS"]);
    let followed = redirecting("https://other.example/SHA256SUMS");
    assert_eq!(followed[..2], ["https://mirror.example/SHA256SUMS", "https://other.example/SHA256SUMS"]);
    assert_eq!(followed.len(), 10, "a circle ends");
    // Writes a wget that has no option against redirects.
    script(&tools.join("wget"), "exit 1");
    let mut install = Command::new("sh");
    install.arg(root().join("deploy/install.sh")).env("PATH", &tools).env("INTO", folder.path().join("into"));
    let said = String::from_utf8_lossy(&install.output().unwrap().stderr).into_owned();
    assert!(said.contains("install curl or GNU wget"), "{said}");
}

#[test]
fn the_table_of_scaling_is_what_the_script_computes() {
    let computed = run("bench/scaling.py", &[]);
    assert!(computed.lines().count() > 8 && read("docs/scaling.md").contains(&computed), "{computed}");
}

/// Builds a release in a folder, and returns its archive. In place of all programs except `faregate`, there are
/// stand-ins, because compressing the real programs would take most of the time.
fn dry_run(folder: &Path, dist: &Path) -> PathBuf {
    let programs = folder.join("programs");
    fs::create_dir(&programs).unwrap();
    // Removes the debugging symbols, because packing and installing them would take most of the time.
    let stripped =
        Command::new("strip").arg("-o").arg(programs.join("faregate")).arg(binary("faregate")).status();
    assert!(stripped.unwrap().success());
    for name in ["inference-gateway", "key-service", "local-model"] {
        script(&programs.join(name), "echo stand-in");
    }
    let mut release = Command::new(root().join("deploy/release.sh"));
    release.arg("--dry-run").env("PROGRAMS", &programs).env("DIST", dist);
    let made = release.output().unwrap();
    let said = String::from_utf8_lossy(&made.stdout).into_owned();
    assert!(made.status.success(), "{said}{}", String::from_utf8_lossy(&made.stderr));
    for sent in [
        "docker buildx build --target secrets ",
        "docker buildx imagetools create ",
        "cosign sign-blob ",
        "cosign attest ",
        "helm push ",
        "gh release create v",
    ] {
        assert!(said.contains(sent), "{sent}: {said}");
    }
    let files = fs::read_dir(dist).unwrap().map(|it| it.unwrap().path());
    files.into_iter().find(|file| file.extension().is_some_and(|it| it == "gz")).unwrap()
}

/// Runs `install.sh` with the files that are in a folder.
fn install(dist: &Path, into: &Path, path: &str, programs: &[&str]) -> Output {
    let mut install = installer(dist, into, path);
    install.args(programs).output().unwrap()
}

fn install_with(dist: &Path, into: &Path, path: &str, env: &[(&str, &str)]) -> Output {
    let mut install = installer(dist, into, path);
    install.envs(env.iter().copied()).output().unwrap()
}

fn installer(dist: &Path, into: &Path, path: &str) -> Command {
    let mut install = Command::new("sh");
    install.arg(dist.join("install.sh"));
    install.env("FROM", format!("file://{}", dist.display())).env("INTO", into).env("PATH", path);
    install
}

/// Checks that the checksums are right, and that every file has one. The files include the chart and, for each program,
/// a list of its crates.
fn assert_sums_cover_all(dist: &Path) {
    let checked =
        Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(dist).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    let checked = String::from_utf8(checked.stdout).unwrap();
    let named: BTreeSet<_> = checked.lines().map(|line| line.strip_suffix(": OK").unwrap()).collect();
    let files = fs::read_dir(dist).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
    let files: BTreeSet<_> = files.filter(|file| file != "SHA256SUMS").collect();
    assert!(named.iter().eq(&files), "{named:?} {files:?}");
    let chart = concat!("faregate-", env!("CARGO_PKG_VERSION"), ".tgz");
    for file in ["install.sh", "faregate.cdx.json", "key-service.cdx.json", chart] {
        assert!(named.contains(file), "{file}: {named:?}");
    }
}

/// Returns the repository that the files in a folder name. If it is still the placeholder, it must be in a registry to
/// which nobody can push images.
fn address(folder: &Path) -> String {
    let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
    let (script, readme) = (read("deploy/install.sh"), read("README.md"));
    let repository = script.lines().find_map(|line| line.strip_prefix("repository=")).unwrap();
    let image = format!("ghcr.io/{repository}/faregate:{}", env!("CARGO_PKG_VERSION"));
    assert!(
        readme.contains(&image) && readme.contains(&format!("git clone https://github.com/{repository} "))
    );
    let installer = format!("https://github.com/{repository}/releases/latest/download/install.sh");
    assert!(readme.contains(&installer) && script.contains(&installer));
    let (registry, of_chart) = if repository == PLACEHOLDER {
        ("localhost/faregate/".to_owned(), "\"\"".to_owned())
    } else {
        (format!("ghcr.io/{repository}/"), format!("ghcr.io/{repository}/"))
    };
    for (file, images) in [("docker-compose.yml", 4), ("deploy/compose/one-process.yml", 1)] {
        let named = read(file).matches(&format!("${{FAREGATE_REGISTRY:-{registry}}}")).count();
        assert_eq!(named, images, "{file}");
    }
    assert!(read("deploy/helm/faregate/values.yaml").contains(&format!("\nimageRegistry: {of_chart}\n")));
    repository.to_owned()
}

/// Writes a shell script that can be executed.
fn script(file: &Path, text: &str) {
    fs::write(file, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
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
