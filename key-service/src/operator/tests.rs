//! Tests of commands in a directory without an installation.

use std::{fs, path::PathBuf};

use clap::{Command as Clap, CommandFactory as _, Parser};
use domain::digest::Pepper;
use shared::clock::{System, random_bytes};

use super::*;

/// Stands for the command line of a program with these commands.
#[derive(Parser)]
struct Program {
    #[command(flatten)]
    service: ServiceOptions,
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: OperatorCommand,
}

/// The directory of a test. It is removed when this value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir()
            .join(format!("operator-{:032x}", u128::from_be_bytes(random_bytes(&System))));
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn is_empty(&self) -> bool {
        fs::read_dir(&self.0).unwrap().next().is_none()
    }

    /// Runs a command. Its data directory is `data` in this directory.
    async fn run(&self, line: &[String]) -> anyhow::Result<ExitCode> {
        let data = self.0.join("data").display().to_string();
        let line = ["program", "--data-dir", &data, "--admin-listen", "127.0.0.1:1"]
            .into_iter()
            .map(str::to_owned)
            .chain(line.iter().cloned());
        let Program { service, options, command } = Program::try_parse_from(line)?;
        let operator = Operator { service: &service, options: &options, program: "program" };
        let pepper =
            || Peppers { current: Pepper::from_hex(&"5a".repeat(32).into()).unwrap(), previous: None };
        let peppers = |of| {
            if of == PeppersFor::NewInstallation {
                fs::create_dir_all(&options.data_dir)?;
            }
            Ok(pepper())
        };
        let examine = async |_| Ok(ExitCode::SUCCESS);
        operator.carry_out(command, peppers, || "http://127.0.0.1:8080".to_owned(), examine).await
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns all commands, each with its required flags.
fn lines(of: &Clap, before: &[String], folder: &Folder) -> Vec<Vec<String>> {
    if of.has_subcommands() {
        let below = of.get_subcommands().filter(|command| command.get_name() != "help");
        let line = |command: &Clap| [before, &[command.get_name().to_owned()]].concat();
        return below.flat_map(|command| lines(command, &line(command), folder)).collect();
    }
    let mut line = before.to_vec();
    for argument in of.get_arguments().filter(|argument| argument.is_required_set()) {
        let missing = folder.0.join("missing").display().to_string();
        let value = match (before[0].as_str(), argument.get_id().as_str()) {
            ("keys", "id") => format!("ak_{:032x}", 1),
            ("groups", "id") => format!("grp_{:032x}", 1),
            ("webhooks", "id") => format!("wh_{:032x}", 1),
            ("management-keys", "id") => format!("mk_{:032x}", 1),
            ("operator-keys", "id") => format!("opk_{:032x}", 1),
            ("store", "from" | "to") => format!("sqlite:{missing}/{}.db", argument.get_id()),
            (_, "amount") => "1".into(),
            (_, "url") => "https://example.com/".into(),
            (_, "file" | "from" | "to") => missing,
            (_, _) => {
                let possible = argument.get_possible_values();
                possible.first().map_or("a", |value| value.get_name()).to_owned()
            }
        };
        line.extend([format!("--{}", argument.get_long().unwrap()), value]);
    }
    vec![line]
}

/// Returns whether a command works on the content of a store.
fn needs_installation(line: &[String]) -> bool {
    let line = std::iter::once("program".to_owned()).chain(line.iter().cloned());
    match Program::try_parse_from(line).map_err(|e| e.to_string()).unwrap().command {
        OperatorCommand::Stored(command) => !command.begins_installation(),
        OperatorCommand::Backup(_) | OperatorCommand::Store(StoreCommand::Show(_)) => true,
        OperatorCommand::Store(StoreCommand::Copy(_))
        | OperatorCommand::Spool(_)
        | OperatorCommand::LogLevel(_)
        | OperatorCommand::Catalogue(_)
        | OperatorCommand::Doctor(_)
        | OperatorCommand::Restore(_) => false,
    }
}

#[tokio::test]
async fn no_command_but_one_makes_an_installation_in_a_folder_without_one() {
    let folder = Folder::new();
    let lines = lines(&Program::command(), &[], &folder);
    assert!(lines.len() > 35, "{lines:?}");
    let create: Vec<_> = ["accounts", "create", "--name", "a"].map(str::to_owned).into();
    assert!(lines.contains(&create), "{lines:?}");
    for line in lines.iter().filter(|line| **line != create) {
        let done = folder.run(line).await;
        assert!(folder.is_empty(), "{line:?} made something");
        if needs_installation(line) {
            let error = format!("{:#}", done.unwrap_err());
            let begins = format!("no installation in {}/data (folder ", folder.0.display());
            assert!(error.starts_with(&begins), "{line:?}: {error}");
            assert!(error.ends_with("where `program` was started, or name it with --data-dir"), "{error}");
        }
    }
    folder.run(&create).await.unwrap();
    folder.run(&["audit".to_owned()]).await.unwrap();
}

#[tokio::test]
async fn a_store_that_nobody_has_used_is_no_installation() {
    let folder = Folder::new();
    let file = folder.0.join("empty.db");
    drop(key_service_records::sqlite::Sqlite::open(&file).unwrap());
    let line = ["--store", &format!("sqlite:{}", file.display()), "audit"].map(str::to_owned);
    let error = folder.run(&line).await.unwrap_err().to_string();
    assert!(error.contains("no installation in ") && error.contains("empty.db"), "{error}");
    let in_memory = ["--store", "memory:", "accounts", "list"].map(str::to_owned);
    let error = folder.run(&in_memory).await.unwrap_err().to_string();
    assert!(error.contains("memory:"), "{error}");
}
