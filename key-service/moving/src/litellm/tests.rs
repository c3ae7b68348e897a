//! Tests of rows from LiteLLM.

use serde_json::json;
use shared::{calendar::Per, time::Timestamp, wire::Limit};

use super::*;

/// Returns a SHA-256 as it appears in a row.
fn sha(n: u8) -> String {
    hex::encode([n; 32])
}

fn usd(amount: &str) -> NanoUsd {
    NanoUsd::parse(amount).unwrap()
}

fn tables(export: Value) -> Vec<Table> {
    let Value::Object(tables) = export else { panic!("no object") };
    let table = |(name, rows): (String, Value)| {
        let Value::Array(rows) = rows else { panic!("no rows") };
        let row = |(at, row): (usize, Value)| {
            let Value::Object(row) = row else { panic!("no row") };
            (format!("{name} row {}", at + 1), row)
        };
        Table { rows: rows.into_iter().enumerate().map(row).collect(), name }
    };
    tables.into_iter().map(table).collect()
}

fn read_all(export: Value) -> (Draft, Report) {
    read(tables(export)).unwrap()
}

fn key_with(columns: &Value) -> (DraftKey, Report) {
    let mut row = json!({"token": sha(1)});
    row.as_object_mut().unwrap().extend(columns.as_object().unwrap().clone());
    let (mut draft, report) = read_all(json!({KEYS: [row]}));
    (draft.keys.remove(0), report)
}

fn wrong(export: Value) -> Vec<String> {
    read(tables(export))
        .unwrap_err()
        .into_iter()
        .map(|Wrong { place, reason }| format!("{place}: {reason}"))
        .collect()
}

fn became<'a>(report: &'a Report, column: &str) -> Vec<&'a str> {
    report.lines().filter(|line| line.column == column).map(|line| line.became).collect()
}

#[test]
fn a_key_keeps_its_credential_its_money_and_its_bounds() {
    let (key, report) = key_with(&json!({
        "key_name": "sk-...a1b2", "key_alias": "checkout", "spend": 12.5, "max_budget": 100.0,
        "expires": "2027-06-30T12:00:00Z", "models": ["gpt-4o", "gpt-4o-mini"], "tpm_limit": 100_000, "rpm_limit": 60,
        "max_parallel_requests": 4, "user_id": "u1", "metadata": {"cost_centre": "A7", "tags": ["x"], "logging": [{"a": 1}]},
    }));
    assert_eq!(
        (key.foreign, key.hint.as_deref(), key.is_revoked),
        (ForeignKey::new([1; 32]), Some("sk-...a1b2"), false)
    );
    assert_eq!((key.used, key.settings.label.as_deref()), (usd("12.5"), Some("checkout")));
    assert_eq!(key.settings.expires_at, Some(Timestamp::parse("2027-06-30T12:00:00Z")));
    let bounds = &key.settings.bounds;
    assert_eq!((bounds.limit, &bounds.windows), (Some(Some(usd("100"))), &None));
    assert_eq!(bounds.models, Some(Some(vec!["gpt-4o".into(), "gpt-4o-mini".into()])));
    assert_eq!((bounds.tokens_per_minute, bounds.requests_per_minute), (Some(Some(100_000)), Some(Some(60))));
    assert_eq!(bounds.max_in_flight, Some(Some(4)));
    let metadata: Vec<_> =
        key.settings.metadata.changes.iter().map(|(name, text)| (name.as_str(), text.as_deref())).collect();
    assert_eq!(metadata, [("cost_centre", Some("A7")), ("tags", Some("[\"x\"]")), ("user_id", Some("u1"))]);
    assert_eq!(became(&report, "spend"), ["used, over the lifetime"]);
    assert_eq!(
        became(&report, "metadata"),
        ["dropped: `logging` is nested, or too long, or over the maximum", "metadata"]
    );
    assert!(report.lines().all(|line| line.rows == 1), "a row counts once, with however many values");
}

#[test]
fn a_budget_that_renews_becomes_limits_and_the_smaller_of_two_for_a_window_holds() {
    let (key, report) = key_with(&json!({
        "max_budget": 10, "budget_duration": "30d",
        "budget_limits": [{"budget_duration": "24h", "max_budget": 1.5}, {"budget_duration": "1mo", "max_budget": 8}],
    }));
    let windows = key.settings.bounds.windows.unwrap();
    assert_eq!(windows, [Limit::new(usd("1.5"), Per::Day), Limit::new(usd("8"), Per::Month)]);
    assert_eq!(key.settings.bounds.limit, None, "a lifetime limit would never renew");
    assert_eq!(became(&report, "budget_duration"), ["30d becomes per month"]);
}

#[test]
fn the_budget_that_a_key_names_says_what_the_key_does_not() {
    let budget =
        json!({"budget_id": "b", "max_budget": 50, "budget_duration": "7d", "rpm_limit": 9, "tpm_limit": 5});
    let row = json!({"token": sha(1), "budget_id": "b", "rpm_limit": 3});
    let (draft, _) = read_all(json!({KEYS: [row], BUDGETS: [budget]}));
    let bounds = &draft.keys[0].settings.bounds;
    assert_eq!(bounds.windows.as_deref(), Some(&[Limit::new(usd("50"), Per::Week)][..]));
    assert_eq!((bounds.requests_per_minute, bounds.tokens_per_minute), (Some(Some(3)), Some(Some(5))));
    let lost = wrong(json!({KEYS: [{"token": sha(1), "budget_id": "b"}]}));
    assert_eq!(
        lost,
        [
            "LiteLLM_VerificationToken row 1: `budget_id` is not in LiteLLM_BudgetTable; the limits of that budget would be lost"
        ]
    );
}

#[test]
fn a_team_becomes_a_group_and_a_blocked_team_disables_its_keys() {
    let team = |id: &str, blocked| {
        json!({
            "team_id": id, "team_alias": "Research", "blocked": blocked, "spend": 3, "max_budget": 40, "models": ["m"],
            "metadata": {"a": true}, "organization_id": "o", "members": ["u1"],
        })
    };
    let key = |n, team: &str| json!({"token": sha(n), "team_id": team});
    let export = json!({TEAMS: [team("t1", false), team("t2", true)], KEYS: [key(1, "t1"), key(2, "t2"), key(3, "elsewhere")]});
    let (draft, report) = read_all(export);
    let group = &draft.groups[0];
    assert_eq!(group.settings.external_id, Some(Some("t1".into())));
    assert_eq!((group.settings.name.as_deref(), group.used), (Some("Research"), usd("3")));
    assert_eq!(group.settings.bounds.limit, Some(Some(usd("40"))));
    assert_eq!(group.settings.metadata.changes["organization_id"].as_deref(), Some("o"));
    let keys: Vec<_> = draft.keys.iter().map(|key| (key.group.as_deref(), key.settings.disabled)).collect();
    assert_eq!(
        keys,
        [("t1", false), ("t2", true), ("elsewhere", false)].map(|(of, is)| (Some(of), Some(is)))
    );
    assert_eq!(became(&report, "members"), ["dropped: invite people with `members invite`"]);
}

#[test]
fn a_key_that_could_call_nothing_still_cannot() {
    let blocked = key_with(&json!({"blocked": true})).0;
    assert_eq!(
        (blocked.settings.disabled, blocked.is_revoked),
        (Some(true), false),
        "it can be enabled again"
    );
    assert!(key_with(&json!({"allowed_routes": ["management_routes", "info_routes"]})).0.is_revoked);
    assert!(!key_with(&json!({"allowed_routes": ["llm_api_routes"]})).0.is_revoked);
    for column in ["rpm_limit", "tpm_limit", "max_parallel_requests"] {
        let (key, _) = key_with(&json!({column: 0, "max_budget": 5}));
        assert_eq!(key.settings.bounds.limit, Some(Some(NanoUsd::ZERO)), "{column}");
    }
}

#[test]
fn a_list_of_models_is_never_wider_than_it_was() {
    let models = |models: Value| {
        let (key, report) = key_with(&json!({"models": models}));
        (key.settings.bounds.models.flatten(), became(&report, "models").join("; "))
    };
    assert_eq!(models(json!([])).0, None);
    for all in ["all-proxy-models", "all-team-models", "*"] {
        assert_eq!(models(json!([all])).0, None);
    }
    assert_eq!(
        models(json!(["no-default-models"])).0,
        Some(vec!["no-default-models".into()]),
        "the name of no model"
    );
    let (wild, told) = models(json!(["openai/*"]));
    assert_eq!(wild, Some(vec!["openai/*".into()]));
    assert!(told.contains("wildcards do not work here"), "{told}");
    let many: Vec<_> = (0..65).map(|n| format!("m{n}")).collect();
    assert!(
        wrong(json!({KEYS: [{"token": sha(1), "models": many}]}))[0]
            .contains("has 65 ids; the maximum is 64")
    );
}

#[test]
fn aliases_are_said_as_lines_of_the_catalogue() {
    let (_, report) = key_with(&json!({"aliases": {"fast": "gpt-4o-mini"}}));
    let expected =
        "dropped: to keep it, add to the model `gpt-4o-mini` in the catalogue: aliases = [\"fast\"]";
    assert_eq!(became(&report, "aliases"), [expected]);
    let team = json!({"team_id": "t", "model_id": 3});
    for column in MODEL_ALIASES {
        let named = json!({"id": 3, column: {"fast": "gpt-4o-mini"}});
        let (_, report) = read_all(json!({TEAMS: [team], MODELS: [named]}));
        assert_eq!(became(&report, "model_id"), [expected], "{column}");
    }
    let (_, report) = read_all(json!({TEAMS: [team]}));
    assert!(became(&report, "model_id")[0].contains("which the export lacks"));
}

#[test]
fn every_field_with_a_value_is_in_the_report_and_no_other() {
    let (_, report) = key_with(&json!({
        "rotation_count": 2, "config": {"a": 1}, "soft_budget_cooldown": false, "permissions": {}, "new_column": "x",
    }));
    let columns: Vec<_> = report.lines().map(|line| (line.column, line.became)).collect();
    assert_eq!(
        columns,
        [
            ("config", "dropped: the catalogue defines how models are served"),
            ("new_column", "dropped: unknown column"),
            ("rotation_count", "dropped: rotate keys with the management API"),
            ("token", "the credential: callers keep their keys"),
        ]
    );
}

#[test]
fn sign_ins_of_litellms_own_pages_are_left_out() {
    let (draft, report) =
        read_all(json!({KEYS: [{"token": sha(1), "team_id": UI_SESSIONS}], "LiteLLM_UserTable": [{}]}));
    assert!(draft.keys.is_empty());
    let lines: Vec<_> = report.lines().map(|line| (line.table, line.rows)).collect();
    assert_eq!(lines, [("LiteLLM_UserTable", 1), (KEYS, 1)]);
}

#[test]
fn every_wrong_row_is_named_with_its_reason_and_never_with_its_token() {
    let said = wrong(json!({
        TEAMS: [{"team_alias": "x"}],
        KEYS: [{"token": "sk-plain"}, {"token": sha(1), "max_budget": -1}, {"token": sha(2), "max_budget": 1, "budget_duration": "soon"}],
    }));
    assert_eq!(
        said,
        [
            "LiteLLM_TeamTable row 1: has no `team_id`",
            "LiteLLM_VerificationToken row 1: `token` is not a SHA-256 in 64 hexadecimal digits",
            "LiteLLM_VerificationToken row 2: `max_budget` is below zero",
            "LiteLLM_VerificationToken row 3: `budget_duration` is `soon`, which is not a duration such as 30d",
        ]
    );
    let twice = wrong(json!({KEYS: [{"token": sha(1)}, {"token": sha(1).to_uppercase()}]}));
    assert_eq!(
        twice,
        ["LiteLLM_VerificationToken row 2: repeats the key of LiteLLM_VerificationToken row 1"]
    );
}

#[test]
fn a_plaintext_in_the_place_of_a_masked_key_is_not_shown() {
    for name in ["sk-whole-secret", "sk-...but-much-too-long-for-a-mask"] {
        assert_eq!(key_with(&json!({"key_name": name})).0.hint, None, "{name}");
    }
}

#[test]
fn a_csv_file_is_recognised_by_its_columns() {
    let table = |columns: &str| table_with(&columns.split(',').map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(table("token,team_id,budget_id,aliases"), Some(KEYS));
    assert_eq!(table("team_id,team_alias,soft_budget"), Some(TEAMS));
    assert_eq!(table("budget_id,soft_budget"), Some(BUDGETS));
    assert_eq!(table("id,aliases"), Some(MODELS));
    assert_eq!(table("user_id,user_email"), None);
}
