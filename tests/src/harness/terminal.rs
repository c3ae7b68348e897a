//! A command on a terminal, with the answers of a person.

use std::{collections::BTreeMap, path::Path, process::Command};

use serde_json::{Value, json};

use super::{command::run_to_end, servers::server::binary};

/// Opens the terminal: a pseudo-terminal takes unsafe code in Rust, and none in Python.
const SCRIPT: &str = include_str!("terminal.py");

/// What a terminal showed of a command that has ended, and its status; one that a signal ended has a negative number.
#[derive(Debug)]
pub struct Shown {
    /// All that was shown, the answers included.
    pub text: String,
    /// Exit status.
    pub status: i64,
}

/// Runs a command of `faregate` in a folder. Each step is a text to wait for, and what a person types then.
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
