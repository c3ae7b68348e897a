use std::io;

use clap::Parser;
use serde_json::{Value, json};

use shared::{
    clock::Clock,
    ids::{AccountId, GenerationId, KeyId},
    money::NanoUsd,
};

use super::*;
use domain::{
    event::Actor,
    key::{ApiKey, KeyPatch},
    ledger::{Command as Ledger, Progress, histories::new_hold},
};
use key_service_management::{
    accounts::payments::NewDeposit,
    governed::Governed as _,
    members::{SignInClient, Token},
    testing::{BEGIN, Office},
};
use key_service_store::store::{Ledger as _, suite::Fault};

/// Links begin with this address.
const PUBLIC: &str = "http://127.0.0.1:8080";

/// Stands for the command line of a program with these commands.
#[derive(Debug, Parser)]
struct Binary {
    #[command(subcommand)]
    command: Option<Command>,
}

/// Runs the command, and returns its output or error.
async fn say(office: &Office, line: &[&str]) -> Result<String, String> {
    let parsed = Binary::try_parse_from([&["faregate"], line].concat()).map_err(|e| e.to_string())?;
    let mut out = Vec::new();
    let done = run(parsed.command.unwrap(), &office.management, PUBLIC, &mut out).await;
    done.map(|()| String::from_utf8(out).unwrap()).map_err(|e| format!("{e:#}"))
}

#[tokio::test]
async fn an_account_is_made_with_its_credit_and_listed() {
    let office = Office::open();
    let id = say(&office, &["accounts", "create", "--name", "acme", "--credit", "12.5"]).await.unwrap();
    let poor = say(&office, &["accounts", "create", "--name", "a much longer name"]).await.unwrap();
    let listed = say(&office, &["accounts", "list"]).await.unwrap();
    let (id, poor) = (id.trim_end(), poor.trim_end());
    assert_eq!(
        listed,
        format!(
            "{:<37}  NAME                CREDIT  HELD  KEYS  CREATED\n\
             {id}  acme                12.5    0     0     2026-11-20T02:11:05Z\n\
             {poor}  a much longer name  0       0     0     2026-11-20T02:11:05Z\n",
            "ID"
        )
    );
    let json: Value =
        serde_json::from_str(&say(&office, &["accounts", "list", "--json"]).await.unwrap()).unwrap();
    assert_eq!(
        json[0],
        serde_json::json!({
            "id": id, "name": "acme", "credit": 12.5, "held": 0, "keys": 0, "created_at": "2026-11-20T02:11:05Z",
            "status": "active",
        })
    );
}

#[tokio::test]
async fn an_account_is_suspended_restored_and_closed_and_a_refusal_says_why() {
    let office = Office::open();
    say(&office, &["accounts", "create", "--name", "acme", "--credit", "1"]).await.unwrap();
    let of = |act: &'static str| ["accounts", act, "--account", "acme"];
    let suspend = [&of("suspend")[..], &["--reason", "unpaid"]].concat();
    for _ in 0..2 {
        assert_eq!(say(&office, &suspend).await.unwrap(), "the account acme is suspended\n");
    }
    let refused = say(&office, &of("close")).await.unwrap_err();
    assert!(refused.contains("1 USD") && refused.contains("0 USD"), "{refused}");
    assert_eq!(say(&office, &of("restore")).await.unwrap(), "the account acme is active\n");
    say(&office, &["accounts", "create", "--name", "empty"]).await.unwrap();
    let of = |act: &'static str| ["accounts", act, "--account", "empty"];
    let refused = say(&office, &of("close")).await.unwrap_err();
    assert_eq!(refused, "Suspend the account before you close it.");
    say(&office, &[&of("suspend")[..], &["--reason", "left"]].concat()).await.unwrap();
    assert_eq!(say(&office, &of("close")).await.unwrap(), "the account empty is closed\n");
    assert_eq!(say(&office, &of("restore")).await.unwrap_err(), "The account is closed.");
    let add = ["credits", "add", "--account", "empty", "--amount", "5"];
    let refused = say(&office, &add).await.unwrap_err();
    assert_eq!(refused, "--account: the account is closed");
}

#[tokio::test]
async fn credit_adds_up_exactly() {
    let office = Office::open();
    say(&office, &["accounts", "create", "--name", "acme"]).await.unwrap();
    let add = ["credits", "add", "--account", "acme", "--note", "invoice 7", "--amount"];
    say(&office, &[&add[..], &["0.1"]].concat()).await.unwrap();
    let said = say(&office, &[&add[..], &["0.2"]].concat()).await.unwrap();
    assert_eq!(said, "added 0.2 USD to acme; its credit is 0.3 USD now\n");
    let beyond = say(&office, &[&add[..], &["9000000"]].concat()).await.unwrap_err();
    assert!(beyond.starts_with("--amount: "), "{beyond}");
    let account = office.management.accounts().await.unwrap().remove(0);
    assert_eq!(account.credit.nanos(), 300_000_000);
    let deposits = office.management.deposits(account.id, 9).await.unwrap();
    assert!(deposits.iter().all(|deposit| deposit.deposited.note == "invoice 7"), "{deposits:?}");
    let too_long = "x".repeat(201);
    let add = ["credits", "add", "--account", "acme", "--amount", "1", "--note"];
    for note in [too_long.as_str(), "two\nlines"] {
        let refused = say(&office, &[&add[..], &[note]].concat()).await.unwrap_err();
        assert!(refused.contains("--note"), "{refused}");
    }
}

#[tokio::test]
async fn a_payment_is_added_once_and_says_the_same_again() {
    let office = Office::open();
    say(&office, &["accounts", "create", "--name", "acme", "--credit", "1"]).await.unwrap();
    let pay = async |id: &str, amount: &str| {
        let line = ["credits", "add", "--account", "acme", "--payment-id", id, "--amount", amount];
        say(&office, &line).await
    };
    let said = pay("pay_1", "50").await.unwrap();
    assert_eq!(said, "added payment pay_1 of 50 USD to acme; its credit was 51 USD then\n");
    assert!(pay("pay_2", "7").await.unwrap().ends_with(" 58 USD then\n"));
    office.clock.set("2027-01-01T00:00:00Z");
    assert_eq!(pay("pay_1", "50.00").await.unwrap(), said);
    let differs = pay("pay_1", "51").await.unwrap_err();
    let expected =
        "--payment-id: this id was used before for a payment of 50 USD of the account; nothing changed now";
    assert_eq!(differs, expected);
    let account = office.management.accounts().await.unwrap().remove(0);
    assert_eq!(account.credit, NanoUsd::from_usd(58));
    let deposits = office.management.deposits(account.id, 9).await.unwrap();
    let payments = deposits.iter().map(|it| it.deposited.payment.as_ref().map(|it| it.id.as_str()));
    let mut payments: Vec<_> = payments.collect();
    payments.sort_unstable();
    assert_eq!(payments, [None, Some("pay_1"), Some("pay_2")]);
    for bad in ["", " pay_3", "pay\n3", &"x".repeat(129)] {
        let refused = pay(bad, "1").await.unwrap_err();
        assert!(refused.contains("--payment-id") && refused.contains("1 to 128 characters"), "{refused}");
    }
}

#[tokio::test]
async fn a_refund_takes_what_is_there_once_and_says_what_is_missing() {
    let office = Office::open();
    say(&office, &["accounts", "create", "--name", "acme", "--credit", "5"]).await.unwrap();
    let refund = async |more: &[&str]| {
        let line = ["credits", "refund", "--account", "acme", "--payment-id", "re_1", "--amount", "7"];
        say(&office, &[&line[..], more].concat()).await
    };
    let unknown = refund(&["--of", "pay_9", "--partial"]).await.unwrap_err();
    assert_eq!(unknown, "--of: there is no payment with this id");
    let too_low = refund(&[]).await.unwrap_err();
    assert!(too_low.starts_with("--amount: only 5 USD can be refunded"), "{too_low}");
    let said = refund(&["--partial"]).await.unwrap();
    let expected = "refund re_1 took 5 USD from acme, 2 USD less than asked; its credit was 0 USD then\n";
    assert_eq!(said, expected);
    assert_eq!(refund(&["--partial"]).await.unwrap(), said);
    let pay = ["credits", "add", "--account", "acme", "--payment-id", "re_1", "--amount", "7"];
    let differs = say(&office, &pay).await.unwrap_err();
    assert!(differs.starts_with("--payment-id: this id was used before for a refund of 7 USD"), "{differs}");
}

#[tokio::test]
async fn a_payment_whose_answer_was_lost_can_be_sent_again() {
    let office = Office::open();
    let (account, _) = office.account("acme").await;
    let line = ["credits", "add", "--account", "acme", "--amount", "5", "--payment-id", "pay_1"];
    say(&office, &line).await.unwrap();
    // The store answers three questions (the account, its state, and the payment), and is then unavailable.
    office.records.fail_after(3);
    let lost = say(&office, &line).await.unwrap_err();
    assert!(lost.contains("run the command again"), "{lost}");
    office.records.recover();
    say(&office, &line).await.unwrap();
    let deposits = office.management.deposits(account, 9).await.unwrap();
    assert_eq!(deposits.iter().filter(|deposit| deposit.deposited.payment.is_some()).count(), 1);
}

#[tokio::test]
async fn a_management_key_is_printed_alone_and_works_until_it_is_revoked() {
    let office = Office::open();
    let (account, _) = office.account("acme").await;
    let create = ["management-keys", "create", "--account", "acme", "--name", "deploy"];
    let plaintext = say(&office, &create).await.unwrap();
    let key = plaintext.strip_suffix('\n').unwrap();
    assert!(key.starts_with("fg_mgmt_") && !key.contains(char::is_whitespace), "{key}");
    assert_eq!(office.management.authenticate(key).await.unwrap().0, account);

    let listed = say(&office, &["management-keys", "list", "--account", "acme", "--json"]).await.unwrap();
    assert!(!listed.contains(key));
    let json: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&json[1]["name"], &json[1]["revoked_at"]), (&Value::from("deploy"), &Value::Null));
    assert_eq!(json[1].as_object().unwrap().len(), 9);

    let id = json[1]["id"].as_str().unwrap();
    let revoked = say(&office, &["management-keys", "revoke", "--id", id]).await.unwrap();
    assert_eq!(revoked, format!("{id} (deploy) is revoked since 2026-11-20T02:11:05Z\n"));
    office.clock.set("2027-01-01T00:00:00Z");
    assert_eq!(say(&office, &["management-keys", "revoke", "--id", id]).await.unwrap(), revoked);
    assert!(office.management.authenticate(key).await.is_err());
    let listed = say(&office, &["management-keys", "list", "--account", "acme"]).await.unwrap();
    let revoked = listed.lines().nth(2).unwrap();
    assert!(revoked.contains("  full   -") && revoked.ends_with("  2026-11-20T02:11:05Z"), "{listed}");
}

#[tokio::test]
async fn a_management_key_is_made_with_its_rights_and_listed_with_them() {
    let office = Office::open();
    office.account("acme").await;
    let group = say(&office, &["groups", "create", "--account", "acme", "--name", "Team"]).await.unwrap();
    let group = group.trim_end();
    let create = ["management-keys", "create", "--account", "acme", "--name", "report"];
    let with = async |flags: &[&str]| say(&office, &[&create[..], flags].concat()).await;
    let rights = ["--scope", "read", "--group", group, "--expires-at", "2027-01-01T00:00:00Z"];
    with(&rights).await.unwrap();
    let list = ["management-keys", "list", "--account", "acme"];
    let json = say(&office, &[&list[..], &["--json"]].concat()).await.unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    let rights =
        |key: &Value| ["scope", "group_id", "expires_at", "last_used_at"].map(|name| key[name].clone());
    let null = Value::Null;
    assert_eq!(rights(&json[0]), ["full".into(), null.clone(), null.clone(), null.clone()]);
    assert_eq!(rights(&json[1]), ["read".into(), group.into(), "2027-01-01T00:00:00Z".into(), null]);
    let listed = say(&office, &list).await.unwrap();
    assert!(listed.contains("SCOPE") && listed.contains(group), "{listed}");
    for (flags, flag) in [
        (["--scope", "write"], "--scope"),
        (["--group", "team"], "--group"),
        (["--group", "grp_00000000000070008000000000000000"], "--group"),
        (["--expires-at", "tomorrow"], "--expires-at"),
    ] {
        let refused = with(&flags).await.unwrap_err();
        assert!(refused.contains(flag), "{refused}");
    }
    let json = say(&office, &[&list[..], &["--json"]].concat()).await.unwrap();
    assert_eq!(serde_json::from_str::<Vec<Value>>(&json).unwrap().len(), 2);
}

#[tokio::test]
async fn a_group_is_made_listed_shown_and_archived() {
    let office = Office::open();
    office.account("acme").await;
    let of = |command: &'static str| ["groups", command, "--account", "acme"];
    let course = ["--name", "Course 101", "--external-id", "course-101", "--settings", r#"{"limit": 400}"#];
    let id = say(&office, &[&of("create")[..], &course].concat()).await.unwrap();
    assert_eq!(say(&office, &[&of("create")[..], &course].concat()).await.unwrap(), id);
    let id = id.trim_end();
    let team =
        say(&office, &[&of("create")[..], &["--name", "Team", "--parent", id]].concat()).await.unwrap();
    let team = team.trim_end();
    let listed = say(&office, &of("list")).await.unwrap();
    assert_eq!(
        listed,
        format!(
            "{:<36}  NAME        EXTERNAL ID  {:<36}  USED  LIMIT  KEYS  CREATED               ARCHIVED\n\
             {id}  Course 101  course-101   {:<36}  0     400    0     2026-11-20T02:11:05Z  -\n\
             {team}  Team        -            {id}  0     -      0     2026-11-20T02:11:05Z  -\n",
            "ID", "PARENT", "-"
        )
    );
    let json = say(&office, &[&of("list")[..], &["--json"]].concat()).await.unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    let shown = say(&office, &[&of("show")[..], &["--id", team]].concat()).await.unwrap();
    assert_eq!(json[1], serde_json::from_str::<Value>(&shown).unwrap());
    assert_eq!((&json[0]["limit"], &json[1]["parent_id"]), (&400.into(), &id.into()));
    let archive = [&of("archive")[..], &["--id", id]].concat();
    let archived = say(&office, &archive).await.unwrap();
    assert_eq!(archived, format!("{id} (Course 101) is archived since 2026-11-20T02:11:05Z\n"));
    office.clock.set("2027-01-01T00:00:00Z");
    assert_eq!(say(&office, &archive).await.unwrap(), archived);
    for (more, said) in [
        (["--name", "x", "--settings", "{\"limt\": 1}"], "--settings: `limt` cannot be set"),
        (["--name", "x", "--settings", "[]"], "--settings: The body is not a valid JSON object"),
        (["--name", "x", "--external-id", ""], "`external_id` has an empty string"),
        (["--name", "x", "--parent", team], "`parent_id` would make three levels"),
    ] {
        let error = say(&office, &[&of("create")[..], &more].concat()).await.unwrap_err();
        assert!(error.starts_with(said), "{error}");
    }
}

/// Creates an account with a key. The key was billed 3 USD today, and 2 USD for a hold from yesterday. Returns both
/// ids.
async fn busy_account(office: &Office) -> (AccountId, KeyId) {
    let (account, _) = office.account("acme").await;
    office.management.deposit(account, NewDeposit::of(NanoUsd::from_usd(10)), Actor::System).await.unwrap();
    let made = ApiKey::create(office.management.by(account, Actor::System), KeyPatch::default(), None)
        .await
        .unwrap();
    let key = made.made.into_inner();
    let now = office.clock.now();
    let hold =
        |n, usd| Ledger::Hold(new_hold(key.id, GenerationId::new(now, [n; 10]), NanoUsd::from_usd(usd)));
    let usage = shared::tokens::Usage::of(12, 2, 5);
    let total =
        Progress { usage, cost: NanoUsd::from_nanos(3_000_000_001), upstream_cost: None, course: None };
    let generation = GenerationId::new(now, [1; 10]);
    let model = "Model Flash".into();
    let capture =
        Ledger::Capture { key: key.id, generation, model, total, chargeable: None, estimated: true };
    let commands = vec![hold(1, 3), hold(2, 2), capture];
    office.store.execute(account, commands, now).await.unwrap();
    (account, key.id)
}

#[tokio::test]
async fn a_journal_is_exported_line_by_line_from_where_one_left_off() {
    let office = Office::open();
    let (_, key) = busy_account(&office).await;
    let export = ["journal", "export", "--account", "acme"];
    let lines = say(&office, &export).await.unwrap();
    let generation = GenerationId::new(office.clock.now(), [1; 10]);
    let expected = format!(
        "{{\"seq\":1,\"generation_id\":\"{generation}\",\"late_generation_id\":null,\"key_id\":\"{key}\",\"group_id\":null,\
         \"parent_group_id\":null,\"model\":\"Model Flash\",\"prompt_tokens\":12,\"cached_tokens\":2,\
         \"completion_tokens\":5,\"cache_write_tokens\":0,\"cache_write_long_tokens\":0,\
         \"audio_input_tokens\":0,\"images\":0,\"reasoning_tokens\":0,\"audio_output_tokens\":0,\
         \"cost\":3.000000001,\"upstream_cost\":null,\"charged\":3.000000001,\"shortfall\":0,\"estimated\":true,\"ending\":\"captured\",\
         \"at\":\"{BEGIN}\",\"charged_change\":3.000000001,\"key_used\":3.000000001,\
         \"dialect\":null,\"stream\":null,\"user\":null,\"request_id\":null,\"upstream\":null,\"finish_reason\":null,\
         \"authorized_ms\":null,\"first_token_ms\":null,\"latency_ms\":null}}\n"
    );
    assert_eq!(lines, expected);
    assert_eq!(say(&office, &[&export[..], &["--after", "1"]].concat()).await.unwrap(), "");
    let lost = say(&office, &[&export[..], &["--after", "2"]].concat()).await.unwrap_err();
    assert!(lost.starts_with("--after: the journal ends at 1, so 2 is from another store"), "{lost}");
    let nobody = say(&office, &["journal", "export", "--account", "nobody"]).await.unwrap_err();
    assert!(nobody.starts_with("--account"), "{nobody}");
}

#[tokio::test]
async fn events_are_exported_line_by_line_from_where_one_left_off() {
    let office = Office::open();
    say(&office, &["accounts", "create", "--name", "acme", "--credit", "5"]).await.unwrap();
    say(&office, &["members", "invite", "--account", "acme", "--name", "ann"]).await.unwrap();
    let export = ["events", "export", "--account", "acme"];
    let lines = say(&office, &export).await.unwrap();
    let events: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> = events.iter().map(|event| (&event["seq"], &event["type"])).collect();
    assert_eq!(
        told,
        [
            (&json!(1), &json!("account.created")),
            (&json!(2), &json!("credit.added")),
            (&json!(3), &json!("member.invited")),
        ]
    );
    assert_eq!(events[2]["actor"]["type"], "operator");
    assert_eq!(events[2]["data"]["name"], "ann");
    let rest = say(&office, &[&export[..], &["--after", "1"]].concat()).await.unwrap();
    assert_eq!(lines.split_once('\n').unwrap().1, rest);
    let nobody = say(&office, &["events", "export", "--account", "nobody"]).await.unwrap_err();
    assert!(nobody.starts_with("--account"), "{nobody}");
}

/// A writer whose reader has closed the pipe.
struct Gone;

impl Write for Gone {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_reader_who_has_read_enough_of_a_journal_is_no_failure_and_one_who_misses_a_secret_is() {
    let office = Office::open();
    busy_account(&office).await;
    let command = |line: &[&str]| Binary::try_parse_from(line).unwrap().command.unwrap();
    let export = command(&["faregate", "journal", "export", "--account", "acme"]);
    run(export, &office.management, PUBLIC, &mut Gone).await.unwrap();
    let create = command(&["faregate", "management-keys", "create", "--account", "acme", "--name", "lost"]);
    run(create, &office.management, PUBLIC, &mut Gone).await.unwrap_err();
}

#[tokio::test]
async fn usage_is_listed_by_day_for_people_and_for_programs() {
    let office = Office::open();
    let (_, key) = busy_account(&office).await;
    let usage = ["usage", "--account", "acme"];
    let table = say(&office, &usage).await.unwrap();
    assert_eq!(
        table,
        format!(
            "DAY         {:<35}  MODEL        REQUESTS  PROMPT  CACHED  COMPLETION  CHARGED\n\
             2026-11-20  {key}  Model Flash  1         12      2       5           3.000000001\n",
            "KEY"
        )
    );
    let json = say(&office, &[&usage[..], &["--json", "--key", &key.to_string()]].concat()).await.unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["requests"], 1);
    assert_eq!(
        (&json[0]["day"], &json[0]["completion_tokens"]),
        (&Value::from("2026-11-20"), &Value::from(5))
    );
    let days = |from, to| [&usage[..], &["--json", "--from", from, "--to", to]].concat();
    assert_eq!(say(&office, &days("2026-10-01", "2026-11-19")).await.unwrap(), "[]\n");
    for (from, to) in
        [("2026-11-20", "2026-11-19"), ("2025-11-20", "2026-11-21"), ("20-11-2026", "2026-11-21")]
    {
        let complaint = say(&office, &days(from, to)).await.unwrap_err();
        assert!(complaint.contains("--from"), "{complaint}");
    }
}

#[tokio::test]
async fn an_audit_says_in_a_line_that_all_is_well_and_else_what_is_not() {
    let office = Office::open();
    let (account, key) = busy_account(&office).await;
    office.account("another").await;
    let sound = say(&office, &["audit"]).await.unwrap();
    assert_eq!(sound, "the books balance (accounts: 2, keys: 1, journal entries: 1)\n");
    office.store.doctor(account, Fault::Used(key)).await;
    let mut out = Vec::new();
    let command = Binary::try_parse_from(["faregate", "audit", "--account", "acme"]).unwrap().command;
    let failed = run(command.unwrap(), &office.management, PUBLIC, &mut out).await.unwrap_err();
    assert_eq!(failed.to_string(), "the books do not balance (wrong figures: 2)");
    let said = String::from_utf8(out).unwrap();
    let wrong =
        "used is 3.000000002 USD, but its journal adds up to 3.000000001 USD (off by 0.000000001 USD)";
    let entry =
        format!("the entry of {key} in the list by spend is missing, or does not fit the other records");
    assert_eq!(said, format!("acme: {entry}\nacme: {key} {wrong}\n"));
    say(&office, &["audit", "--account", "another"]).await.unwrap();
    let nobody = say(&office, &["audit", "--account", "nobody"]).await.unwrap_err();
    assert!(nobody.starts_with("--account"), "{nobody}");
}

#[tokio::test]
async fn the_journal_is_compared_with_what_an_upstream_says_it_served() {
    let office = Office::open();
    busy_account(&office).await;
    let now = office.clock.now();
    let (billed, lost) = (GenerationId::new(now, [1; 10]), GenerationId::new(now, [8; 10]));
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let audit = ["audit", "--against", path];
    let write = |lines: &[String]| std::fs::write(path, lines.join("\n")).unwrap();
    let line = |who: &str, prompt: u64, completion: u64| {
        format!("{{{who},\"prompt_tokens\":{prompt},\"completion_tokens\":{completion}}}")
    };
    let id = |id: GenerationId| format!("\"id\":\"{id}\"");

    write(&[line(&id(billed), 12, 5)]);
    let equal = "served: requests 1, prompt tokens 12, completion tokens 5\n\
                 billed: requests 1, prompt tokens 12, completion tokens 5\n";
    assert_eq!(say(&office, &audit).await.unwrap(), equal);
    // The upstream's record has the upstream's own id, and a time that differs by four seconds.
    write(&[line("\"id\":\"chatcmpl-7\",\"time\":\"2026-11-20T04:11:09.678+02:00\"", 12, 5), String::new()]);
    assert_eq!(say(&office, &audit).await.unwrap(), equal);
    let strict = say(&office, &[&audit[..], &["--tolerance", "3"]].concat()).await.unwrap_err();
    assert!(strict.contains("differences: 1") || strict.contains("differences: 2"), "{strict}");

    write(&[line(&id(lost), 3, 4), line(&id(billed), 12, 9)]);
    let mut out = Vec::new();
    let parsed = Binary::try_parse_from([&["faregate"], &audit[..]].concat()).unwrap();
    let failed = run(parsed.command.unwrap(), &office.management, PUBLIC, &mut out).await.unwrap_err();
    assert_eq!(failed.to_string(), "the journal differs from the upstream's record (differences: 2)");
    let said = String::from_utf8(out).unwrap();
    let expected = format!(
        "served, not billed: {lost}: prompt 3, completion 4\n\
         billed differently: {billed}: served prompt 12, completion 9; billed prompt 12, completion 5 (estimated)\n\
         served: requests 2, prompt tokens 15, completion tokens 13\n\
         billed: requests 1, prompt tokens 12, completion tokens 5\n"
    );
    assert_eq!(said, expected);

    write(&[line("\"time\":\"2026-11-20T02:11:05Z\"", 1, 1)]);
    let mut out = Vec::new();
    let parsed = Binary::try_parse_from([&["faregate"], &audit[..], &["--json"]].concat()).unwrap();
    run(parsed.command.unwrap(), &office.management, PUBLIC, &mut out).await.unwrap_err();
    let json: Value = serde_json::from_slice(&out).unwrap();
    let kinds: Vec<_> = json["differences"].as_array().unwrap().iter().map(|d| d["kind"].clone()).collect();
    assert_eq!(kinds, ["not_billed", "not_served"]);
    assert_eq!((&json["equal"], &json["differences"][1]["charged"]), (&false.into(), &3.000_000_001.into()));

    for (nonsense, complaint) in [
        ("{}", "line 1"),
        ("\n\n{\"id\":\"gen_1\",\"prompt_tokens\":1,\"completion_tokens\":1}", "line 3"),
        ("{\"time\":\"noon\",\"prompt_tokens\":1,\"completion_tokens\":1}", "`time`"),
    ] {
        write(&[nonsense.to_owned()]);
        let said = say(&office, &audit).await.unwrap_err();
        assert!(said.contains("--against") && said.contains(complaint), "{said}");
    }
    let missing = say(&office, &["audit", "--against", "/nowhere"]).await.unwrap_err();
    assert!(missing.contains("/nowhere"), "{missing}");
}

#[tokio::test]
async fn a_mistake_names_its_flag_and_changes_nothing() {
    let office = Office::open();
    let (_, _) = office.account("acme").await;
    let before = office.management.accounts().await.unwrap();
    let long = "x".repeat(81);
    for (line, flag) in [
        (&["accounts", "create"][..], "--name"),
        (&["accounts", "create", "--name", ""], "--name"),
        (&["accounts", "create", "--name", " a"], "--name"),
        (&["accounts", "create", "--name", "a\nb"], "--name"),
        (&["accounts", "create", "--name", "a\u{200f}b"], "--name"),
        (&["accounts", "create", "--name", "ac\u{200b}me"], "--name"),
        (&["accounts", "create", "--name", "ac\u{a0}me"], "--name"),
        (&["accounts", "create", "--name", &long], "--name"),
        (&["accounts", "create", "--name", "acme"], "--name"),
        (&["accounts", "create", "--name", "b", "--credit", "-1"], "--credit"),
        (&["accounts", "create", "--name", "b", "--credit", "9000000.000000001"], "--credit"),
        (&["accounts", "create", "--name", "b", "--credit", "0.0000000001"], "--credit"),
        (&["accounts", "create", "--name", "b", "--credit", "ten"], "--credit"),
        (&["credits", "add", "--account", "nobody", "--amount", "1"], "--account"),
        (&["credits", "add", "--account", "acme"], "--amount"),
        (&["credits", "add", "--account", "acme", "--amount", "0"], "--amount"),
        (&["credits", "add", "--account", "acme", "--amount", "-5"], "--amount"),
        (&["credits", "add", "--account", "acme", "--amount", "$5"], "--amount"),
        (&["management-keys", "create", "--account", "nobody", "--name", "x"], "--account"),
        (&["management-keys", "create", "--account", "acme", "--name", ""], "--name"),
        (&["management-keys", "create", "--account", "acme", "--name", "te\u{ad}st"], "--name"),
        (&["members", "invite", "--account", "acme", "--name", "an\u{2060}n"], "--name"),
        (&["groups", "create", "--account", "acme", "--name", "a\u{202e}b"], "--name"),
        (&["management-keys", "list", "--account", "nobody"], "--account"),
        (&["management-keys", "revoke", "--id", "mk_1"], "--id"),
        (&["management-keys", "revoke", "--id", "mk_00000000000070008000000000000000"], "--id"),
    ] {
        let complaint = say(&office, line).await.unwrap_err();
        assert!(complaint.contains(flag), "{line:?}: {complaint}");
    }
    assert_eq!(office.management.accounts().await.unwrap(), before);
}

#[tokio::test]
async fn a_store_that_is_away_leaves_the_outcome_open_and_says_so() {
    let office = Office::open();
    office.account("acme").await;
    office.records.fail_after(1);
    let complaint =
        say(&office, &["credits", "add", "--account", "acme", "--amount", "1"]).await.unwrap_err();
    assert!(complaint.contains("unavailable") && complaint.contains("accounts list"), "{complaint}");
}

/// Returns the token of a printed sign-in link.
fn link_of(printed: &str) -> Token {
    let token = printed.trim_end().strip_prefix("http://127.0.0.1:8080/dashboard/sign-in/link#");
    Token::parse(token.unwrap_or_else(|| panic!("{printed}"))).unwrap()
}

#[tokio::test]
async fn a_member_is_invited_with_a_link_listed_and_removed() {
    let office = Office::open();
    office.account("acme").await;
    let invite = ["members", "invite", "--account", "acme", "--name", "ann@example.com", "--role", "viewer"];
    let link = link_of(&say(&office, &invite).await.unwrap());
    let session =
        office.management.sign_in_with_link(&link, "", SignInClient::default()).await.unwrap().token;
    let member = office.management.session(&session).await.unwrap().unwrap().member;
    assert_eq!((member.name.as_str(), member.role.as_str()), ("ann@example.com", "viewer"));
    assert!(say(&office, &invite).await.unwrap_err().contains("--name"), "the name is taken");
    let listed = say(&office, &["members", "list", "--account", "acme"]).await.unwrap();
    assert!(listed.contains("ann@example.com  viewer"), "{listed}");
    let remove = ["members", "remove", "--account", "acme", "--name", "ann@example.com"];
    say(&office, &remove).await.unwrap();
    assert!(office.management.session(&session).await.unwrap().is_none(), "its session has ended");
    assert!(say(&office, &remove).await.unwrap_err().contains("--name"));
}

#[tokio::test]
async fn a_sign_in_link_without_a_name_is_for_the_owner() {
    let office = Office::open();
    office.account("acme").await;
    for _ in 0..2 {
        let link = link_of(&say(&office, &["sign-in-link", "--account", "acme"]).await.unwrap());
        let session =
            office.management.sign_in_with_link(&link, "", SignInClient::default()).await.unwrap().token;
        let member = office.management.session(&session).await.unwrap().unwrap().member;
        assert_eq!((member.name.as_str(), member.role.as_str()), ("owner", "owner"));
    }
    let unknown = say(&office, &["sign-in-link", "--account", "acme", "--name", "bob"]).await.unwrap_err();
    assert!(unknown.contains("--name"), "{unknown}");
}

#[tokio::test]
async fn a_sign_in_link_without_a_name_makes_no_owner_beside_others() {
    let office = Office::open();
    let (account, _) = office.account("acme").await;
    let invite = ["members", "invite", "--account", "acme", "--name"];
    say(&office, &[&invite[..], &["vera", "--role", "viewer"]].concat()).await.unwrap();
    say(&office, &[&invite[..], &["ann"]].concat()).await.unwrap();
    say(&office, &[&invite[..], &["bob"]].concat()).await.unwrap();
    let refused = say(&office, &["sign-in-link", "--account", "acme"]).await.unwrap_err();
    assert!(refused.starts_with("--name") && refused.contains(": ann, bob. "), "{refused}");
    assert!(refused.contains("members invite"), "{refused}");
    assert_eq!(office.management.members(account).await.unwrap().len(), 3);
    say(&office, &["sign-in-link", "--account", "acme", "--name", "bob"]).await.unwrap();
    // An account without owners gets a new owner.
    let (poor, _) = office.account("poor").await;
    say(&office, &["members", "invite", "--account", "poor", "--name", "vera", "--role", "viewer"])
        .await
        .unwrap();
    say(&office, &["sign-in-link", "--account", "poor"]).await.unwrap();
    let members = office.management.members(poor).await.unwrap();
    assert_eq!(members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>(), ["vera", "owner"]);
}

#[test]
fn commands_that_read_are_known_from_those_that_write() {
    let writes = |line: &str| {
        let line: Vec<&str> = ["faregate"].into_iter().chain(line.split(' ')).collect();
        Binary::try_parse_from(line).unwrap().command.unwrap().writes()
    };
    for reads in [
        "usage --account a",
        "audit",
        "audit --against f",
        "accounts list",
        "journal export --account a",
        "events export --account a",
        "import keys --account a --file f --dry-run",
        "import litellm --account a --file f --dry-run",
    ] {
        assert!(!writes(reads), "{reads}");
    }
    for does in [
        "accounts create --name a",
        "credits add --account a --amount 1",
        "sign-in-link --account a",
        "import keys --account a --file f",
        "import litellm --account a --file f",
    ] {
        assert!(writes(does), "{does}");
    }
}

#[tokio::test]
async fn a_webhook_is_made_with_its_secret_listed_tested_and_removed() {
    let office = Office::open();
    office.account("acme").await;
    let of = async |act: &str, flags: &[&str]| {
        say(&office, &[&["webhooks", act, "--account", "acme"][..], flags].concat()).await
    };
    let url = "http://127.0.0.1:9/hook";
    let flags = ["--url", url, "--type", "key.created", "--type", "credit.exhausted"];
    let made: Value = serde_json::from_str(&of("create", &flags).await.unwrap()).unwrap();
    assert!(made["secret"].as_str().unwrap().starts_with("whsec_"), "{made}");
    let id = made["id"].as_str().unwrap();
    let listed: Value = serde_json::from_str(&of("list", &["--json"]).await.unwrap()).unwrap();
    assert_eq!((&listed[0]["id"], listed[0].get("secret")), (&made["id"], None));
    let table = of("list", &[]).await.unwrap();
    assert!(table.contains(id) && table.contains("key.created,credit.exhausted"), "{table}");
    let event: Value = serde_json::from_str(&of("test", &["--id", id]).await.unwrap()).unwrap();
    assert_eq!((&event["type"], &event["data"]["webhook_id"]), (&json!("webhook.test"), &json!(id)));
    assert_eq!(of("delete", &["--id", id]).await.unwrap(), format!("{id} ({url}) is removed\n"));
    for (act, flags) in [
        ("delete", &["--id", id][..]),
        ("create", &["--url", "ftp://example.com"]),
        ("create", &["--url", "https://10.0.0.1/"]),
        ("create", &["--url", "https://10.1/"]),
        ("create", &["--url", url, "--type", "key.imagined"]),
    ] {
        assert!(of(act, flags).await.is_err(), "{act} {flags:?}");
    }
    assert_eq!(of("list", &["--json"]).await.unwrap(), "[]\n");
}

#[tokio::test]
async fn keys_are_made_listed_shown_changed_and_revoked_by_flags_of_their_settings() {
    let office = Office::open();
    office.account("acme").await;
    let of = async |act: &str, flags: &[&str]| {
        say(&office, &[&["keys", act, "--account", "acme"][..], flags].concat()).await
    };
    let json = |text: String| serde_json::from_str::<Value>(&text).unwrap();
    let flags = ["--label", "null", "--limit", "2.5", "--expires-at", "2027-01-01T00:00:00Z"];
    let more = ["--models", r#"["m"]"#, "--disabled", "true", "--metadata", r#"{"a":"b"}"#];
    let mut made = json(of("create", &[flags, more].concat()).await.unwrap());
    assert!(made["key"].as_str().unwrap().starts_with("fg_api_"), "{made}");
    made.as_object_mut().unwrap().remove("key");
    assert_eq!(
        (&made["label"], &made["limit"], &made["models"]),
        (&json!("null"), &json!(2.5), &json!(["m"]))
    );
    let id = made["id"].as_str().unwrap();
    assert_eq!(json(of("show", &["--id", id]).await.unwrap()), made);
    assert_eq!(json(of("list", &["--json"]).await.unwrap()), json!([made]));
    let listed = of("list", &[]).await.unwrap();
    assert!(listed.contains(id) && listed.contains("disabled  0     2.5    -"), "{listed}");
    let change = ["--id", id, "--limit", "null", "--expires-at", "null", "--disabled", "false"];
    let changed = json(of("update", &change).await.unwrap());
    assert_eq!(
        (&changed["limit"], &changed["expires_at"], &changed["status"]),
        (&json!(null), &json!(null), &json!("active"))
    );
    assert_eq!(changed["metadata"], json!({"a": "b"}), "what no flag names stays");
    for (act, flags, said) in [
        ("create", &["--limit=-1"][..], "`limit` must be at least 0."),
        ("create", &["--models", "[]"], "`models` is empty"),
        ("create", &["--limit", "much"], "The body is not a valid JSON object"),
        ("update", &["--id", id, "--group-id", "x"], "`group_id` must be the id of a group"),
        ("update", &["--id", "ak_0198f3c2a7b84d5e9f60718293a4b5c6"], "The account has no such API key."),
    ] {
        let error = of(act, flags).await.unwrap_err();
        assert!(error.starts_with(said), "{error}");
    }
    let revoked = of("revoke", &["--id", id]).await.unwrap();
    assert_eq!(revoked, format!("{id} (null) is revoked since 2026-11-20T02:11:05Z\n"));
    assert!(
        of("update", &["--id", id]).await.unwrap_err().starts_with("A revoked API key cannot be changed.")
    );
}

#[tokio::test]
async fn groups_and_webhooks_are_changed_by_flags_of_their_settings() {
    let office = Office::open();
    office.account("acme").await;
    let of = async |words: &[&str], flags: &[&str]| {
        let said = say(&office, &[words, &["--account", "acme"], flags].concat()).await;
        said.map(|text| serde_json::from_str::<Value>(&text).unwrap())
    };
    let group = say(&office, &["groups", "create", "--account", "acme", "--name", "Team"]).await.unwrap();
    let change = ["--id", group.trim_end(), "--max-in-flight", "3", "--key-defaults", r#"{"limit":1}"#];
    let changed = of(&["groups", "update"], &change).await.unwrap();
    assert_eq!((&changed["name"], &changed["max_in_flight"]), (&json!("Team"), &json!(3)));
    assert_eq!(changed["key_defaults"]["limit"], 1);
    let fixed = of(&["groups", "update"], &["--id", group.trim_end(), "--external-id", "x"]).await;
    assert!(fixed.unwrap_err().contains("--external-id"));
    let webhook = of(&["webhooks", "create"], &["--url", "https://example.com/"]).await.unwrap();
    let id = webhook["id"].as_str().unwrap();
    let changed = of(&["webhooks", "update"], &["--id", id, "--enabled", "false"]).await.unwrap();
    assert_eq!((&changed["url"], &changed["enabled"]), (&webhook["url"], &json!(false)));
    assert_eq!(of(&["webhooks", "show"], &["--id", id]).await.unwrap(), changed);
}
