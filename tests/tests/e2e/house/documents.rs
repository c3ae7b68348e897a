//! The documents. Their links must work, and the catalogues in them must be valid.

use std::{
    fs,
    path::{Path, PathBuf},
};

use shared_catalog::Catalog;

/// The beginning of a catalogue. Code blocks in documents leave it out.
const SERVICE: &str = "[service]\nname = \"f\"\nprovider = \"f\"\ndocs = \"f\"\n";

/// The documents whose links are checked.
const DOCUMENTS: [&str; 38] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "docs/README.md",
    "docs/alerts.md",
    "docs/backup.md",
    "docs/callers.md",
    "docs/catalogue.md",
    "docs/clients.md",
    "docs/commands.md",
    "docs/console.md",
    "docs/first-hour.md",
    "docs/governing.md",
    "docs/measurements.md",
    "docs/moving.md",
    "docs/observe.md",
    "docs/operator-api.md",
    "docs/overshoot.md",
    "docs/proof.md",
    "docs/releasing.md",
    "docs/run.md",
    "docs/scaling.md",
    "docs/settings.md",
    "docs/start/README.md",
    "docs/start/agent.md",
    "docs/start/anthropic.md",
    "docs/start/ollama.md",
    "docs/start/openai.md",
    "docs/start/reseller.md",
    "docs/start/university.md",
    "docs/start/vllm.md",
    "docs/store.md",
    "docs/tried.md",
    "docs/upgrade.md",
    "docs/warnings.md",
    "tests/README.md",
];

/// Maximum number of lines in the document about the architecture. It should be possible to read it in one sitting.
const ARCHITECTURE_LINES: usize = 220;

#[test]
fn documents_link_to_files_headings_and_names_that_are_there() {
    let root = root();
    for document in DOCUMENTS {
        let path = root.join(document);
        let text = fs::read_to_string(&path).unwrap();
        for (label, target) in links(&text) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let linked = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(linked.exists(), "{document} links to {target}");
            if linked.extension().is_none_or(|extension| extension == "png") {
                continue;
            }
            let content = fs::read_to_string(&linked).unwrap();
            let anchors = content.lines().filter_map(|line| line.strip_prefix('#'));
            assert!(
                heading.is_empty() || anchors.map(anchor).any(|it| it == heading),
                "{document}: #{heading}"
            );
            // If the link's text is a name in code style, the linked file must define a test, a type or a function of
            // that name.
            if let Some(name) = label.strip_prefix('`').and_then(|label| label.strip_suffix('`'))
                && is_rust(&linked)
                && !is_rust(name)
            {
                let defined = name.rsplit("::").next().unwrap();
                assert!(content.contains(defined), "{document}: {name} is not in {target}");
            }
        }
    }
}

#[test]
fn the_architecture_is_short_and_names_files_that_are_there() {
    let text = include_str!("../../../../ARCHITECTURE.md");
    assert!(text.lines().count() <= ARCHITECTURE_LINES);
    let root = root();
    let mut files = Vec::new();
    for source in ["shared", "key-service", "inference-gateway", "local-model", "faregate", "tests"] {
        collect(&root.join(source), &mut files);
    }
    let code = text.split('`').skip(1).step_by(2);
    for name in code.filter(|name| is_rust(name) && !name.contains(' ')) {
        assert!(files.iter().any(|file| file.ends_with(name)), "{name}");
    }
}

#[test]
fn the_code_map_names_files_and_folders_that_are_where_it_says() {
    let text = include_str!("../../../../ARCHITECTURE.md");
    let (_, map) = text.split_once("\n## Code map\n").unwrap();
    let rows = map.lines().skip_while(|line| !line.starts_with("| `"));
    let rows: Vec<&str> = rows.take_while(|line| line.starts_with("| ")).collect();
    let missing: Vec<String> = rows.iter().flat_map(|row| missing_in(row)).collect();
    assert!(rows.len() > 5 && missing.is_empty(), "{missing:?}");
    assert_eq!(missing_in("| `shared/` | `wire/`, `door/src/`, `gone/`, `gone.rs` |"), ["gone/", "gone.rs"]);
    assert_eq!(missing_in("| `gone/` | nothing |"), ["gone/"]);
}

/// Returns the files and folders that a row of the code map names and that do not exist. They may be in a folder that
/// the first cell of the row names, in the `src` of that folder, or next to it.
fn missing_in(row: &str) -> Vec<String> {
    let is_path =
        |name: &&str| !name.contains(' ') && (name.ends_with('/') || Path::new(name).extension().is_some());
    let named = |cell: &str| -> Vec<String> {
        cell.split('`').skip(1).step_by(2).filter(is_path).map(str::to_owned).collect()
    };
    let (places, content) = row.trim_start_matches("| ").split_once(" | ").unwrap();
    let mut folders: Vec<PathBuf> = vec![root().to_path_buf()];
    let mut missing = Vec::new();
    for name in named(places).into_iter().chain(named(content)) {
        let nearby = folders.iter().flat_map(|folder| [folder.join(&name), folder.join("src").join(&name)]);
        match nearby.into_iter().find(|path| path.exists()) {
            Some(path) if places.contains(&format!("`{name}`")) => {
                folders.extend([path.parent().unwrap().to_owned(), path]);
            }
            Some(_) => {}
            None => missing.push(name),
        }
    }
    missing
}

#[test]
fn catalogues_that_documents_and_examples_show_are_read_and_leave_room_for_prompts() {
    let root = root();
    let mut shown = Vec::new();
    for document in ["README.md", "docs/catalogue.md"] {
        let text = fs::read_to_string(root.join(document)).unwrap();
        let blocks = text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned());
        shown.extend(blocks.map(|block| (document, format!("{SERVICE}{block}"))));
    }
    shown.push(("vllm.toml", fs::read_to_string(root.join("deploy/compose/vllm.toml")).unwrap()));
    let values = fs::read_to_string(root.join("deploy/helm/faregate/values.yaml")).unwrap();
    let (_, models) = values.split_once("\n  [service]\n").unwrap();
    let (models, _) = models.split_once("\ngateway:").unwrap();
    shown.push(("values.yaml", format!("[service]\n{models}")));
    assert!(shown.len() >= 5, "{}", shown.len());
    for (document, text) in shown {
        let catalog = Catalog::parse(&text, document).unwrap_or_else(|e| panic!("{e}\n{text}"));
        for model in &catalog.models {
            // A request without a limit may use the longest output. What is left of the server's window is for the
            // prompt.
            assert!(2 * model.max_output_tokens <= model.context_window, "{document}: {}", model.id);
        }
    }
}

#[test]
fn the_first_commands_of_the_readme_need_nothing_that_does_not_exist_yet() {
    let read = |name: &str| fs::read_to_string(root().join(name)).unwrap();
    let (readme, makefile) = (read("README.md"), read("Makefile"));
    let installer = read("deploy/install.sh");
    let repository = installer.lines().find_map(|line| line.strip_prefix("repository=")).unwrap();
    let block = readme.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let commands = block.lines().filter_map(|line| line.split('#').next()).flat_map(|line| line.split("&&"));
    for command in commands {
        match command.split_whitespace().collect::<Vec<_>>()[..] {
            ["git", "clone", address] => assert_eq!(address, format!("https://github.com/{repository}")),
            ["cd", folder] => assert!(repository.ends_with(&format!("/{folder}"))),
            ["cargo", "run"] => {
                let workspace = read("Cargo.toml");
                let member =
                    workspace.split("default-members = [\"").nth(1).unwrap().split('"').next().unwrap();
                assert!(root().join(member).join("src/main.rs").is_file(), "{member}");
            }
            ["make", target] => {
                let rule = format!("\n{target}:");
                let (_, recipe) = makefile.split_once(&rule).unwrap_or_else(|| panic!("no target {target}"));
                let recipe: Vec<_> = recipe.lines().skip(1).take_while(|line| !line.is_empty()).collect();
                let scripts = recipe.iter().flat_map(|line| line.split_whitespace());
                for script in scripts.filter(|word| word.starts_with("tests/")) {
                    assert!(root().join(script).is_file(), "{target}: {script}");
                }
            }
            ref other => panic!("{other:?} is not known to be there for everybody"),
        }
    }
    let (before, released) = readme.split_once("\n## Once released\n").unwrap();
    for later in ["ghcr.io", "releases/"] {
        assert!(!before.contains(later) && released.contains(later), "{later}");
    }
    assert!(released.trim_start().starts_with("No release is published yet"));
}

#[test]
fn the_first_hour_changes_lines_and_breaks_tests_that_are_there() {
    let page = include_str!("../../../../docs/first-hour.md");
    let mut files = Vec::new();
    for pure in ["domain", "moving"] {
        collect(&root().join("key-service").join(pure).join("src"), &mut files);
    }
    let sources: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let snippet = page.split("```rust\n").nth(1).unwrap().lines().next().unwrap();
    let removed = page.lines().find_map(|line| line.strip_prefix("-  ")).unwrap();
    for line in [snippet, removed] {
        assert!(sources.contains(line.trim()), "{line}");
    }
    for test in ["a_list_of_models_is_never_wider", "checks_are_made_in", "checks_of_groups_stand_between"] {
        assert!(page.contains(test) && sources.contains(test), "{test}");
    }
}

/// Returns the root of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Adds the Rust files in a folder and below it.
pub(crate) fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") && !path.ends_with("clients") {
            collect(&path, files);
        } else if is_rust(&path) {
            files.push(path);
        }
    }
}

fn is_rust(file: impl AsRef<Path>) -> bool {
    file.as_ref().extension().is_some_and(|extension| extension == "rs")
}

/// Returns the texts and targets of links to files in the repository. Code blocks are left out.
fn links(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|part| {
        part.match_indices("](").filter_map(move |(at, _)| {
            let label = part[..at].rsplit('[').next()?;
            let target = part[at + 2..].split(')').next()?;
            (!target.contains("://")).then_some((label, target))
        })
    })
}

/// Returns the anchor of a heading. It is in lower case, has hyphens instead of blanks, and contains no other
/// punctuation.
fn anchor(heading: &str) -> String {
    let title = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = title.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
