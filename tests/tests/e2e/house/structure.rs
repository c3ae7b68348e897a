//! Rules about the structure of the source code that the compiler does not check. Imports must not form a circle, and
//! pure crates must stay pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Crates that must stay pure. These are the names under which other crates import them.
const PURE_CRATES: [(&str, &str); 10] = [
    ("domain", "key-service/domain"),
    ("key_service_moving", "key-service/moving"),
    ("answer", "inference-gateway/answer"),
    ("metering", "inference-gateway/metering"),
    ("raw-json", "inference-gateway/raw-json"),
    ("reply", "inference-gateway/reply"),
    ("request", "inference-gateway/request"),
    ("routing", "inference-gateway/routing"),
    ("token-bounds", "inference-gateway/token-bounds"),
    ("upstream-error", "inference-gateway/upstream-error"),
];
/// Crates that a pure crate may use, in addition to other pure crates: the types that both services share, and
/// libraries for data, hashes, errors and tests.
const PURE: [&str; 19] = [
    "base64",
    "blake3",
    "bytes",
    "hex",
    "itoa",
    "memchr",
    "minicbor",
    "percent-encoding",
    "proptest",
    "ring",
    "schemars",
    "serde",
    "serde_json",
    "shared",
    "shared-catalog",
    "shared-corpus",
    "shared-fuzz",
    "thiserror",
    "totp-rs",
];
/// Libraries that the crate with the types of both services may use, in addition to [`PURE`]. They contain no runtime
/// and no network. `axum-core` defines responses, so that an error can be turned into a response.
const OF_WORDS: [&str; 9] =
    ["axum-core", "chrono", "crc32fast", "http", "rand", "secrecy", "subtle", "toml", "uuid"];

/// Names of files and folders that contain nothing but tests.
const TESTS: [&str; 7] = ["tests", "suite", "histories", "testing", "reference", "fuzz", "examples"];
/// First line of the file that was generated from the contract.
const GENERATED: &str = "// This file is @generated";

/// Maximum number of files in a folder. So many can be taken in at a glance.
const MOST_FILES: usize = 15;

/// For each module, the modules that it imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn no_modules_import_each_other_in_a_circle() {
    for name in crates() {
        let source = root().join(&name).join("src");
        for folder in folders(&source) {
            let parent: Vec<&str> = folder.iter().map(|part| part.to_str().unwrap()).collect();
            assert_eq!(circle(&imports(&source, &parent)), None, "in {} of {name}", folder.display());
        }
    }
}

#[test]
fn no_module_imports_what_a_module_above_it_holds() {
    for name in crates() {
        let source = root().join(&name).join("src");
        let files = sources(&source);
        let modules: BTreeSet<Vec<String>> = rust(&source).iter().map(|file| module(&source, file)).collect();
        for file in &files {
            let here = module(&source, file);
            for named in paths(&read(file)).iter().filter_map(|path| absolute(&here, path)) {
                let mut prefixes = (0..=named.len()).rev().map(|length| &named[..length]);
                let holder = prefixes.find(|it| modules.contains(*it)).unwrap_or_default();
                let is_above = holder.len() < here.len() && here.starts_with(holder);
                assert!(!is_above, "{} of {name} imports {}", here.join("::"), named.join("::"));
            }
        }
    }
}

#[test]
fn no_folder_of_sources_has_more_files_than_a_reader_takes_in() {
    let mut files: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for name in crates() {
        for folder in ["src", "tests"].map(|it| root().join(&name).join(it)).iter().filter(|it| it.is_dir()) {
            for file in rust(folder) {
                *files.entry(file.parent().unwrap().to_owned()).or_default() += 1;
            }
        }
    }
    for (folder, count) in files {
        assert!(count <= MOST_FILES, "{} has {count}", folder.display());
    }
}

#[test]
fn images_are_built_with_every_crate_of_the_workspace_at_hand() {
    // Whatever it builds, Cargo reads the manifests of all crates.
    let ignored = fs::read_to_string(root().join(".dockerignore")).unwrap();
    let kept: Vec<PathBuf> =
        ignored.lines().filter_map(|line| line.strip_prefix('!')).map(PathBuf::from).collect();
    for name in crates() {
        let manifest = Path::new(&name).join("Cargo.toml");
        assert!(kept.iter().any(|kept| manifest.starts_with(kept)), "{}", manifest.display());
    }
}

#[test]
fn pure_crates_and_the_words_they_are_made_of_name_no_runtime_no_network_and_no_store() {
    let words = ["shared", "shared/catalog"].map(|it| (it, &OF_WORDS[..]));
    let rules = PURE_CRATES.map(|(_, folder)| (folder, &[][..]));
    for (name, also) in words.into_iter().chain(rules) {
        let manifest = fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
        let (_, dependencies) = manifest.split_once("[dependencies]").unwrap();
        for line in dependencies.lines().filter(|line| line.contains("workspace = true")) {
            let library = line.split(['.', ' ']).next().unwrap();
            let is_rules = PURE_CRATES.iter().any(|(known, _)| *known == library);
            let is_pure = PURE.contains(&library) || is_rules || also.contains(&library);
            assert!(is_pure, "{name} names {library}");
        }
    }
}

#[test]
fn a_circle_is_found() {
    let imports = |pairs: &[(&str, &str)]| {
        let mut all = Imports::new();
        for (from, to) in pairs {
            all.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        all
    };
    assert_eq!(circle(&imports(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    let found = circle(&imports(&[("a", "b"), ("b", "c"), ("c", "b")])).unwrap();
    assert!(found.contains(&"b".to_owned()) && found.contains(&"c".to_owned()));
    assert_eq!(
        use_paths("use a::{b, c::{d, self}};\npub(crate) use super::x;\n"),
        [vec!["a", "b"], vec!["a", "c", "d"], vec!["a", "c", "self"], vec!["super", "x"]]
    );
    assert_eq!(
        named_paths("pub(in crate::a) fn f() { // crate::b\n    super::c::d(); $crate::e(crate::f::G);\n}\n"),
        [vec!["crate", "f", "G"], vec!["super", "c", "d"]]
    );
}

/// Returns the folders of all crates, as the workspace names them.
fn crates() -> Vec<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let (_, members) = manifest.split_once("\nmembers = [").unwrap();
    let (members, _) = members.split_once(']').unwrap();
    let names: Vec<String> = members.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(names.len() >= 17, "{names:?}");
    names
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    // Tests may import anything, so they are left out.
    text.split("\nmod tests {").next().unwrap().to_owned()
}

/// Returns the Rust files in a folder and below it. Tests and generated files are left out.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let is_source = |file: &PathBuf| {
        let inside = file.strip_prefix(folder).unwrap().with_extension("");
        let is_test = inside.iter().any(|part| TESTS.contains(&part.to_str().unwrap()));
        !is_test && !fs::read_to_string(file).unwrap().starts_with(GENERATED)
    };
    rust(folder).into_iter().filter(is_source).collect()
}

/// Returns all Rust files in a folder and below it.
fn rust(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// Returns the folders of a crate's source that contain modules. The first is that of the source itself.
fn folders(source: &Path) -> BTreeSet<PathBuf> {
    let inside = |file: &PathBuf| file.strip_prefix(source).unwrap().parent().unwrap().to_owned();
    sources(source).iter().map(inside).collect()
}

/// Returns which of the modules directly below `parent` imports which other.
fn imports(source: &Path, parent: &[&str]) -> Imports {
    let folder = parent.iter().fold(source.to_owned(), |folder, name| folder.join(name));
    let mut all = Imports::new();
    for file in sources(&folder) {
        let here = module(source, &file);
        let Some(module) = here.get(parent.len()).cloned() else { continue };
        for absolute in paths(&read(&file)).iter().filter_map(|path| absolute(&here, path)) {
            let below = absolute.len() > parent.len() && absolute.iter().zip(parent).all(|(a, b)| a == b);
            if below && absolute[parent.len()] != module {
                all.entry(module.clone()).or_default().insert(absolute[parent.len()].clone());
            }
        }
    }
    all
}

/// Returns the path of the module that a file contains. It is empty for the root of a library or a program.
fn module(source: &Path, file: &Path) -> Vec<String> {
    let inside = file.strip_prefix(source).unwrap().with_extension("");
    let parts = inside.iter().map(|part| part.to_str().unwrap().to_owned());
    parts.filter(|part| part != "lib" && part != "main").collect()
}

/// Returns the path of an import, from the root of the crate. Returns `None` if the path does not lead into the crate.
fn absolute(here: &[String], path: &[String]) -> Option<Vec<String>> {
    match path[0].as_str() {
        "crate" => Some(path[1..].to_vec()),
        "super" => {
            let up = path.iter().take_while(|part| *part == "super").count();
            let base = here.len().saturating_sub(up);
            Some(here[..base].iter().chain(&path[up..]).cloned().collect())
        }
        _ => None,
    }
}

/// Returns the paths of all imports, and all paths that the code writes in full.
fn paths(text: &str) -> Vec<Vec<String>> {
    [use_paths(text), named_paths(text)].concat()
}

/// Returns the paths in the code that begin with the crate or with a parent module.
fn named_paths(text: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for line in text.lines().map(|line| line.split("//").next().unwrap()) {
        for root in ["crate::", "super::"] {
            for (at, _) in line.match_indices(root) {
                let before = &line[..at];
                let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '$');
                if before.ends_with(goes_on) || before.ends_with("(in ") {
                    continue;
                }
                let end = line[at..].find(|c: char| !goes_on(c)).map_or(line.len(), |length| at + length);
                // Names in braces are part of a `use`. `use_paths` reads them.
                if line[end..].starts_with('{') {
                    continue;
                }
                let names = line[at..end].split("::").filter(|name| !name.is_empty());
                paths.push(names.map(str::to_owned).collect());
            }
        }
    }
    paths
}

/// Returns the paths in all `use` declarations. There is one for each imported name.
fn use_paths(text: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("use ") {
        let before = &rest[..at];
        let line = before.rsplit('\n').next().unwrap();
        rest = &rest[at + "use ".len()..];
        let starts = line.trim().is_empty() || line.trim_start().starts_with("pub");
        let Some(end) = rest.find(';').filter(|_| starts) else { continue };
        let tree: String = rest[..end].split_whitespace().collect::<Vec<_>>().join("");
        expand(&tree, &[], &mut paths);
        rest = &rest[end..];
    }
    paths
}

fn expand(tree: &str, before: &[String], paths: &mut Vec<Vec<String>>) {
    let Some(open) = tree.find('{') else {
        let names = tree.trim_start_matches("::").split("::").map(str::to_owned);
        paths.push(before.iter().cloned().chain(names).collect());
        return;
    };
    let names = tree[..open].split("::").filter(|name| !name.is_empty()).map(str::to_owned);
    let before: Vec<String> = before.iter().cloned().chain(names).collect();
    let (mut depth, mut from) = (0, open + 1);
    for (at, c) in tree.char_indices().skip(open) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if (c == ',' && depth == 1) || (c == '}' && depth == 0) {
            if from < at {
                expand(&tree[from..at], &before, paths);
            }
            from = at + 1;
        }
    }
}

/// If modules import each other in a circle, returns them. To find them, modules that import none of the remaining
/// modules are removed, again and again. What remains is the circle.
fn circle(imports: &Imports) -> Option<Vec<String>> {
    let mut left = imports.clone();
    loop {
        let free: Vec<String> = left
            .iter()
            .filter(|(_, imported)| !imported.iter().any(|name| left.contains_key(name)))
            .map(|(name, _)| name.clone())
            .collect();
        if left.is_empty() {
            return None;
        }
        if free.is_empty() {
            return Some(left.into_keys().collect());
        }
        for name in free {
            left.remove(&name);
        }
    }
}
