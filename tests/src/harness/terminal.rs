//! Runs a command on a terminal, and types what a person would answer.

use std::{collections::BTreeMap, path::Path, process::Command};

use serde_json::{Value, json};

use super::{command::run_to_end, servers::server::binary};

/// Python script that opens the terminal. In Rust, a pseudo-terminal would need unsafe code.
const SCRIPT: &str = include_str!("terminal.py");

/// What a terminal showed while a command ran, and the exit status of the command. The status is negative if a signal
/// ended the command.
#[derive(Debug)]
pub struct Shown {
    /// Everything that the terminal showed, including what was typed.
    pub text: String,
    pub status: i64,
}

/// Runs a `faregate` command in a directory. Each step consists of a text to wait for, and of what a person types after
/// that.
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
