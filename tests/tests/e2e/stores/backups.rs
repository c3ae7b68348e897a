//! Backups of the embedded store, made while it is in use and restored later.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::Value;
use tempfile::TempDir;
use tests::{
    harness::{ACCOUNT, Deployment, Form, Options, Server, Settings, Stack, cost_of},
    upstream::Script,
};

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o777
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[apply(fact)]
async fn a_served_store_is_backed_up_again_and_again_and_the_last_backup_is_restored() {
    let stack = Stack::start().await;
    stack.others_spend();
    let key = stack.key().await;
    let to = stack.data().join("backup");
    let place = to.display().to_string();
    for round in 1..=5 {
        assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
        let said = stack.cli(&["backup", "--to", &place]);
        assert!(said.contains("its books balance"), "round {round}: {said}");
        assert_eq!(names(&to), ["faregate.db"], "round {round}: nothing else is left");
        assert_eq!(mode(&to.join("faregate.db")), 0o600);
    }
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);

    let settings = stack.server().settings();
    let (refused, _, error) = settings.try_cli(&["restore", "--from", &place]);
    assert!(!refused.success() && error.contains("is in use: stop the program"), "{error}");
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200, "it is served as before");

    stack.server().kill();
    let said = settings.cli(&["restore", "--from", &place]);
    assert!(said.contains("is restored from"), "{said}");
    let data = settings.data.join("data");
    assert_eq!(mode(&data.join("faregate.db")), 0o600);
    assert!(
        names(&data).iter().any(|name| name.starts_with("faregate.db.") && !name.contains('-')),
        "the one before is kept"
    );
    stack.server().restart().await;
    assert_eq!(stack.used(&key).await.nanos(), 5 * cost_of(12, 5).nanos(), "as it was at the last backup");
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
}

#[apply(fact)]
async fn a_program_that_exports_bills_and_events_misses_none_after_a_restore() {
    let stack = Stack::start().await;
    stack.others_spend();
    let key = stack.key().await;
    let place = stack.data().join("backup").display().to_string();
    let serve = async |requests| {
        for _ in 0..requests {
            assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
        }
    };
    let export = |what: &str, after: u64| -> Vec<u64> {
        let printed = stack.cli(&[what, "export", "--account", ACCOUNT, "--after", &after.to_string()]);
        let seq = |line: &str| serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64().unwrap();
        printed.lines().map(seq).collect()
    };
    serve(2).await;
    stack.cli(&["backup", "--to", &place]);
    serve(5).await;
    stack.key().await;
    let seen = ["journal", "events"].map(|what| *export(what, 0).last().unwrap());
    stack.server().kill();
    stack.cli(&["restore", "--from", &place]);
    stack.server().restart().await;
    assert_eq!(
        ["journal", "events"].map(|what| export(what, seen[usize::from(what == "events")]).len()),
        [0, 0]
    );
    // Serves fewer requests than were lost, so that the store's own numbers are still lower than those seen before.
    serve(3).await;
    stack.key().await;
    let bills = export("journal", seen[0]);
    assert!(bills.len() == 3 && bills.iter().all(|seq| *seq > seen[0]), "{bills:?} after {seen:?}");
    let events = export("events", seen[1]);
    assert!(!events.is_empty() && events.iter().all(|seq| *seq > seen[1]), "{events:?} after {seen:?}");
    assert!(export("journal", bills[2]).is_empty());
    let unknown = (bills[2] + 1).to_string();
    let (failed, _, error) =
        stack.operator().try_cli(&["journal", "export", "--account", ACCOUNT, "--after", &unknown]);
    assert!(!failed.success() && error.contains("--after: the journal ends at"), "{error}");
    // Restores the same backup again, which does not know of the first restore.
    let last = *bills.last().unwrap();
    stack.server().kill();
    stack.cli(&["restore", "--from", &place]);
    stack.server().restart().await;
    serve(2).await;
    let again = export("journal", last);
    assert!(again.len() == 2 && again.iter().all(|seq| *seq > last), "{again:?} after {last}");
}

#[apply(fact)]
async fn five_days_of_backup_and_restore_lose_what_came_after_each_backup_and_nothing_else() {
    let stack = Stack::start().await;
    stack.others_spend();
    let key = stack.key().await;
    let place = stack.data().join("backup").display().to_string();
    for day in 1..=5 {
        assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
        stack.cli(&["backup", "--to", &place]);
        assert_eq!(stack.call(&key, Script::tokens(12, 500)).send().await.status, 200);
        stack.server().kill();
        stack.cli(&["restore", "--from", &place]);
        stack.server().restart().await;
        assert_eq!(stack.used(&key).await.nanos(), day * cost_of(12, 5).nanos(), "day {day}");
        stack.cli(&["audit"]);
    }
}

#[apply(fact)]
async fn a_backup_that_is_damaged_or_of_another_program_takes_no_place() {
    let folder = TempDir::new().unwrap();
    let settings = Settings::all_in_one(folder.path(), Vec::new());
    let server = Server::start(&settings).await;
    let to = folder.path().join("backup");
    let place = to.display().to_string();
    settings.cli(&["backup", "--to", &place]);
    server.kill();
    let store = folder.path().join("data/faregate.db");
    let before = fs::read(&store).unwrap();

    let good = fs::read(to.join("faregate.db")).unwrap();
    let mut damaged = good.clone();
    let (half, end) = (good.len() / 2, good.len() - 100);
    damaged[half..end].fill(0x5a);
    for (content, reason) in
        [(damaged, "is damaged"), (b"a letter".to_vec(), "is not a database of this service")]
    {
        fs::write(to.join("faregate.db"), content).unwrap();
        let (status, _, error) = settings.try_cli(&["restore", "--from", &place]);
        assert!(!status.success() && error.contains(reason), "{error}");
        assert_eq!(fs::read(&store).unwrap(), before, "what is there stays");
    }
    assert!(names(&folder.path().join("data")).iter().all(|name| !name.contains("restoring")));
}

#[apply(fact)]
async fn over_redis_a_backup_says_how_it_is_made_there() {
    let deployment = Deployment::Services { gateways: 1, key_services: 1, redis: Form::Alone };
    let stack = Stack::with(Options { deployment, ..Options::default() }).await;
    for command in [["backup", "--to", "somewhere"], ["restore", "--from", "somewhere"]] {
        let (status, _, error) = stack.operator().try_cli(&command);
        assert!(!status.success() && error.contains("redis-cli --rdb"), "{error}");
    }
}
