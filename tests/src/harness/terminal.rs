//! Runs a command on a terminal and types a person's answers.

use std::{collections::BTreeMap, path::Path, process::Command};

use serde_json::{Value, json};

use super::{command::run_to_end, servers::server::binary};

/// Script that opens the terminal in Python, since a pseudo-terminal in Rust would need unsafe code.
const SCRIPT: &str = include_str!("terminal.py");

/// Everything that a terminal showed during a command, and the exit status, which is negative if a signal ended the
/// command.
#[derive(Debug)]
pub struct Shown {
    /// All text shown, including the answers.
    pub text: String,
    pub status: i64,
}

/// Runs a `faregate` command in a directory. Each step is a text to wait for, and what a person types after it.
pub fn on_terminal(folder: &Path, env: &[(&str, String)], words: &[&str], steps: &[(&str, &str)]) -> Shown {
    let env: BTreeMap<&str, &String> = env.iter().map(|(name, value)| (*name, value)).collect();
    let asked = json!({
        "program": binary("faregate"),
        "words": words,
        "folder": folder,
        "env": env,
        "steps": steps,
    });
    let output = run_to_end(Command::new("python3").args(["-c", SCRIPT, &asked.to_string()]));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = shown["shown"].as_str().unwrap().replace("\r\n", "\n");
    Shown { text, status: shown["status"].as_i64().unwrap() }
}
