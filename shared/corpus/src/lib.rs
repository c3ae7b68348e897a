//! Answers of real servers, sorted by server, and what clients must read from each of them. For tests only.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a case that cannot be read fails its test")]

use std::{fs, path::Path};

use serde_json::Value;

mod read;

pub use read::{ClientDialect, Read};

/// Folder with the cases.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/upstreams");

/// Oddities of an answer that are due to the form that the client requested, so cases do not list them.
pub const BY_REQUEST: [&str; 3] = ["sse_for_whole", "whole_for_stream", "message_in_stream"];

/// Members that a case file may have.
const MEMBERS: [&str; 12] = [
    "api",
    "asks",
    "status",
    "text",
    "reasoning",
    "refusal",
    "calls",
    "finish",
    "usage",
    "error",
    "odd",
    "health",
];

/// A server's answer, and what clients must read from it.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name of the server and of the case, such as `mistral/content-list`.
    pub name: String,
    /// API in which the gateway calls the server: `chat`, `responses` or `messages`.
    pub api: String,
    /// The only form of the answer that may be requested (`whole` or `stream`), if there is only one.
    pub asks: Option<String>,
    pub status: u16,
    pub expected: Read,
    /// Code of the error that clients receive instead of an answer.
    pub error: Option<String>,
    /// Oddities that the gateway counts in the answer, except for those in [`BY_REQUEST`].
    pub odd: Vec<String>,
    /// Whether the gateway treats the server as healthy after this answer.
    pub is_well: bool,
    /// Body of the answer, exactly as the server sends it.
    pub body: Vec<u8>,
}

/// Reads all cases, sorted by name.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for server in sorted(Path::new(FOLDER)).into_iter().filter(|entry| entry.is_dir()) {
        for file in sorted(&server) {
            let name = format!("{}/{}", stem(&server), stem(&file));
            cases.push(Case::read(name, &fs::read(&file).unwrap()));
        }
    }
    assert!(!cases.is_empty(), "{FOLDER} has cases");
    cases
}

fn sorted(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}

impl Case {
    fn read(name: String, file: &[u8]) -> Self {
        let mark = b"\n---\n";
        let at = file.windows(mark.len()).position(|part| part == mark);
        let at = at.unwrap_or_else(|| panic!("{name} has a line ---"));
        let (head, body) = (std::str::from_utf8(&file[..at]).unwrap(), file[at + mark.len()..].to_vec());
        let mut members = serde_json::Map::new();
        for line in head.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (member, value) = line.split_once(": ").unwrap_or_else(|| panic!("{name}: {line}"));
            assert!(MEMBERS.contains(&member), "{name}: {member} is no member");
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            members.insert(member.to_owned(), value);
        }
        let text = |member: &str| members.get(member).and_then(Value::as_str).map(str::to_owned);
        let list = |member: &str| members.get(member).and_then(Value::as_array).cloned().unwrap_or_default();
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let expected = Read {
            text: text("text").unwrap_or_default(),
            reasoning: text("reasoning").unwrap_or_default(),
            refusal: text("refusal").unwrap_or_default(),
            calls: list("calls").iter().map(|call| [word(&call[0]), word(&call[1])]).collect(),
            finish: text("finish").unwrap_or_else(|| "stop".into()),
            usage: <[u64; 3]>::try_from(list("usage").iter().filter_map(Value::as_u64).collect::<Vec<_>>())
                .ok(),
            error: None,
        };
        Self {
            api: text("api").unwrap_or_else(|| "chat".into()),
            asks: text("asks"),
            status: members
                .get("status")
                .and_then(Value::as_u64)
                .and_then(|s| u16::try_from(s).ok())
                .unwrap_or(200),
            expected,
            error: text("error"),
            odd: list("odd").iter().map(word).collect(),
            is_well: text("health").is_none_or(|health| health == "well"),
            body,
            name,
        }
    }

    /// Returns whether a client may request the answer in this form.
    pub fn is_asked_for(&self, form: &str) -> bool {
        self.asks.as_deref().is_none_or(|asks| asks == form)
    }

    /// Returns what a client of this dialect must read. Not every dialect can express everything that another can.
    pub fn expected_in(&self, dialect: ClientDialect) -> Read {
        self.expected.clone().in_dialect(dialect)
    }
}
