//! Tests of the import commands, over a store in memory.

use std::{io::Write as _, path::Path};

use super::{super::Command, *};
use domain::{
    group::{Group, GroupPatch},
    key::ApiKey,
};
use key_service_management::{governed::Governed as _, testing::Office};
use key_service_store::store::{Order, Page, Store};
use shared::{ids::AccountId, money::NanoUsd, wire::MAX_PAGE};

const ACCOUNT: &str = "acme";

/// Returns the path of an export in the fixtures.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/moving").join(name)
}

/// Returns the paths of one LiteLLM version's tables as CSV, teams first.
fn csv() -> Vec<PathBuf> {
    ["teams", "budgets", "models", "keys"].map(|table| fixture(&format!("litellm-1.74-{table}.csv"))).into()
}

fn into(is_dry_run: bool) -> Into {
    Into { account: ACCOUNT.into(), dry_run: is_dry_run }
}

async fn say(office: &Office, command: ImportCommand) -> Result<String, String> {
    let mut out = Vec::new();
    let done = super::super::run(Command::Import(command), &office.management, "", &mut out).await;
    done.map(|()| String::from_utf8(out).unwrap()).map_err(|e| format!("{e:#}"))
}

async fn litellm(office: &Office, file: Vec<PathBuf>) -> Result<String, String> {
    say(office, ImportCommand::Litellm { into: into(false), file }).await
}

/// Imports JSON lines.
async fn lines(office: &Office, lines: &[&str]) -> Result<String, String> {
    let mut file = tempfile::Builder::new().suffix(".jsonl").tempfile().unwrap();
    writeln!(file, "{}", lines.join("\n")).unwrap();
    let said = say(office, ImportCommand::Keys { into: into(false), file: file.path().to_owned() }).await;
    let name = crate::import::file::name(file.path());
    said.map(|said| said.replace(&name, "FILE")).map_err(|said| said.replace(&name, "FILE"))
}

async fn keys(store: &Store, account: AccountId) -> Vec<ApiKey> {
    let page = Page { after: None, order: Order::Ascending, status: None, limit: MAX_PAGE };
    store.keys(account, page).await.unwrap()
}

/// Returns a line of JSON with a made-up SHA-256 (this byte, repeated) and the members in `more`.
fn line(of: u8, more: &str) -> String {
    format!(r#"{{"sha256": "{}"{more}}}"#, hex::encode([of; 32]))
}

#[tokio::test]
async fn exports_of_all_forms_make_the_same_keys_and_a_second_run_changes_nothing() {
    let mut all = Vec::new();
    for files in [vec![fixture("litellm-1.74.json")], csv()] {
        let office = Office::open();
        let (account, _) = office.account(ACCOUNT).await;
        let said = litellm(&office, files.clone()).await.unwrap();
        assert!(said.ends_with("\nmade 2 groups and 7 keys, 2 of them disabled and 0 revoked\n"), "{said}");
        let made = keys(&office.store, account).await;
        let again = litellm(&office, files).await.unwrap();
        assert!(
            again.contains(
                "made 0 groups and 0 keys, 0 of them disabled and 0 revoked\n2 groups exist already and stay unchanged: "
            ),
            "{again}"
        );
        assert!(again.contains("7 keys exist already and stay unchanged: "), "{again}");
        assert_eq!(keys(&office.store, account).await, made);
        let figures = |key: &ApiKey| {
            let key = key.clone();
            (key.label, key.hint, key.metadata, key.spend.budget, key.spend.expires_at, key.spend.disabled)
        };
        all.push(made.iter().map(figures).collect::<Vec<_>>());
    }
    assert_eq!(all[0], all[1], "CSV and JSON say the same");
    let labels: Vec<&str> = all[0].iter().map(|(label, ..)| label.as_str()).collect();
    assert_eq!(
        labels[..3],
        ["checkout", "research notebook, \"beta\"", "trial"],
        "in the order of the export"
    );
}

#[tokio::test]
async fn an_export_of_a_later_version_has_its_windows_and_says_what_was_dropped() {
    let office = Office::open();
    let (account, _) = office.account(ACCOUNT).await;
    let said = litellm(&office, vec![fixture("litellm-1.104.json")]).await.unwrap();
    let line = |column: &str| {
        let of = |line: &&str| line.split_whitespace().nth(1) == Some(column);
        said.lines().find(of).unwrap_or_else(|| panic!("{column} is not in\n{said}"))
    };
    assert!(line("budget_limits").ends_with("24h becomes limits per day"), "{said}");
    assert!(line("rotation_count").ends_with("dropped: rotate keys with the management API"), "{said}");
    assert!(line("last_active").contains("dropped: "), "{said}");
    assert!(said.contains("LiteLLM_UserTable"), "{said}");
    let checkout = &keys(&office.store, account).await[0];
    assert_eq!(checkout.metadata["project_id"], "p-1");
    assert_eq!(checkout.spend.budget.used, NanoUsd::from_nanos(1_500_000_000));
    assert_eq!(checkout.spend.budget.bounds.as_ref().unwrap().windows[0].amount, NanoUsd::from_usd(20));
}

#[tokio::test]
async fn a_dry_run_says_the_same_and_changes_nothing() {
    let office = Office::open();
    let (account, _) = office.account(ACCOUNT).await;
    let file = vec![fixture("litellm-1.74.json")];
    let dry = say(&office, ImportCommand::Litellm { into: into(true), file: file.clone() }).await.unwrap();
    assert_eq!(keys(&office.store, account).await, []);
    let said = litellm(&office, file).await.unwrap();
    assert_eq!(dry.replace("would make", "made").replace("; nothing was changed", ""), said);
}

#[tokio::test]
async fn lines_of_json_make_keys_with_the_settings_of_the_management_api() {
    let office = Office::open();
    let (account, _) = office.account(ACCOUNT).await;
    let (name, external_id) = (Some("A".into()), Some(Some("customer-a".into())));
    let group = GroupPatch { name, external_id, ..GroupPatch::default() };
    Group::create(office.management.by(account, domain::event::Actor::System), group, None).await.unwrap();
    let file = fixture("keys.jsonl");
    let said = say(&office, ImportCommand::Keys { into: into(false), file }).await.unwrap();
    assert_eq!(said, "made 0 groups and 2 keys, 0 of them disabled and 0 revoked\n");
    let keys = keys(&office.store, account).await;
    let first = &keys[0];
    assert_eq!((first.label.as_str(), first.metadata["plan"].as_str()), ("Customer A", "pro"));
    assert_eq!(first.spend.budget.used, NanoUsd::from_nanos(1_250_000_000));
    assert!(first.spend.group.is_some() && first.spend.expires_at.is_some());
    assert!(first.hint.starts_with("sha256:"), "{}", first.hint);
    assert_eq!(keys[1].spend.budget.bounds.as_ref().unwrap().requests_per_minute.unwrap().per_minute, 60);
}

#[tokio::test]
async fn a_file_that_cannot_be_read_imports_nothing() {
    let office = Office::open();
    office.account(ACCOUNT).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().to_owned();
    let said = say(&office, ImportCommand::Keys { into: into(false), file }).await.unwrap_err();
    assert!(said.starts_with("nothing was imported:") && said.contains("line 1: cannot be read: "), "{said}");
}

#[tokio::test]
async fn a_line_that_is_wrong_is_named_and_nothing_is_imported() {
    let office = Office::open();
    let (account, _) = office.account(ACCOUNT).await;
    let good = line(1, "");
    let cases = [
        ("{", "is not a valid JSON object"),
        (r#"{"sha256": "sk-plain"}"#, "`sha256` must be a SHA-256 in 64 hexadecimal digits."),
        (r#"{"label": "x"}"#, "`sha256` must be a SHA-256 in 64 hexadecimal digits."),
        (&line(2, r#", "limit": -1"#), "`limit` must be at least 0."),
        (&line(2, r#", "used": "1""#), "`used` must be a number or null, not a string."),
        (&line(2, r#", "limits": [{"amount": 1, "per": "year"}]"#), "`limits[0].per` must be"),
        (&line(2, r#", "limmit": 1"#), "`limmit` cannot be set"),
        (&line(2, r#", "group_id": "grp_1""#), "`group_id` cannot be set; `group_external_id` can."),
        (
            &line(2, r#", "group_external_id": "nobody""#),
            "no group of the account has the external_id `nobody`",
        ),
        (&line(1, ""), "repeats the key of FILE line 1"),
    ];
    for (bad, reason) in cases {
        let said = lines(&office, &[&good, "", bad]).await.unwrap_err();
        assert!(
            said.starts_with("nothing was imported:\n  FILE line 3: ") && said.contains(reason),
            "{bad}: {said}"
        );
        assert!(!said.contains("sk-plain"), "{said}");
    }
    assert_eq!(keys(&office.store, account).await, []);
    let (other, _) = office.account("other").await;
    lines(&office, &[&good]).await.unwrap();
    let command =
        ImportCommand::Keys { into: Into { account: "other".into(), dry_run: false }, file: fixture("none") };
    assert!(say(&office, command).await.unwrap_err().starts_with("--file: cannot open"));
    assert_eq!((keys(&office.store, account).await.len(), keys(&office.store, other).await.len()), (1, 0));
}
