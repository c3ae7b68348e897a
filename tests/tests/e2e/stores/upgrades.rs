//! Stores written by another version of a program, or by a program with other secrets.

use std::fs;

use tempfile::TempDir;
use tests::{
    harness::{Deployment, Form, Options, Server, Settings, Stack, cost_of},
    upstream::Script,
};

/// A well-formed pepper that no key was hashed with.
const OTHER: &str = "0ddba110ddba110ddba110ddba110ddba110ddba110ddba110ddba110ddba110";

#[apply(fact)]
async fn a_wrong_pepper_is_refused_at_start_and_by_commands_over_an_sqlite_file() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    stack.server().terminate();
    assert!(stack.server().ended().await.success());
    let folder = TempDir::new().unwrap();
    let mut wrong = stack.server().settings().clone();
    wrong.data = folder.path().to_owned();
    let file = stack.server().settings().data.join("data/faregate.db");
    wrong.env.push(("FAREGATE_STORE", format!("sqlite:{}", file.display())));
    wrong.env.push(("FAREGATE_PEPPER", OTHER.into()));
    let log = Server::refuses(&wrong).await;
    assert!(log.contains("error: FAREGATE_PEPPER: is not the pepper"), "{log}");
    let (status, _, error) = wrong.try_cli(&["accounts", "list"]);
    assert!(!status.success() && error.contains("FAREGATE_PEPPER"), "{error}");
    stack.server().restart().await;
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.cost(), cost_of(12, 5));
}

#[apply(fact)]
async fn a_wrong_pepper_is_refused_at_start_over_redis_and_a_rotation_is_not() {
    let stack =
        Stack::with(Options { deployment: Deployment::services(1, 1, Form::Alone), ..Options::default() })
            .await;
    let settings = stack.key_services[0].settings();
    let pepper = settings.env.iter().find(|(name, _)| *name == "FAREGATE_PEPPER").unwrap().1.clone();
    let another = |folder: &TempDir, env: Vec<(&'static str, String)>| {
        let mut another = settings.clone();
        another.data = folder.path().to_owned();
        another.env.extend(env);
        another
    };
    let folder = TempDir::new().unwrap();
    let wrong = another(&folder, vec![("FAREGATE_PEPPER", OTHER.into())]);
    let log = Server::refuses(&wrong).await;
    assert!(log.contains("error: FAREGATE_PEPPER: is not the pepper"), "{log}");
    let during = vec![("FAREGATE_PEPPER", OTHER.into()), ("FAREGATE_PREVIOUS_PEPPER", pepper)];
    drop(Server::start(&another(&folder, during)).await);
    // A process that the rotation has not yet reached restarts.
    stack.key_services[0].restart().await;
}

#[apply(fact)]
async fn stores_of_a_newer_or_an_earlier_version_are_refused_and_stay_as_they_are() {
    let folder = TempDir::new().unwrap();
    let newer = |folder: &TempDir| Settings::all_in_one(folder.path(), Vec::new());
    newer(&folder).cli(&["accounts", "create", "--name", "first"]);
    let file = folder.path().join("data/faregate.db");
    // An SQLite file contains the version of the tables at byte 60.
    let mut bytes = fs::read(&file).unwrap();
    assert!(u32::from_be_bytes(bytes[60..64].try_into().unwrap()) > 0);
    bytes[60..64].copy_from_slice(&1_000_u32.to_be_bytes());
    fs::write(&file, &bytes).unwrap();
    let log = Server::refuses(&newer(&folder)).await;
    assert!(log.contains("error: FAREGATE_STORE") && log.contains("newer version"), "{log}");
    bytes[60..64].copy_from_slice(&22_u32.to_be_bytes());
    fs::write(&file, &bytes).unwrap();
    let log = Server::refuses(&newer(&folder)).await;
    assert!(log.contains("error: FAREGATE_STORE") && log.contains("earlier layout"), "{log}");
    assert_eq!(fs::read(&file).unwrap(), bytes, "it stays as it is");

    let stack =
        Stack::with(Options { deployment: Deployment::services(1, 1, Form::Alone), ..Options::default() })
            .await;
    // In a cluster, the name's slot is on one master; the others refuse the commands.
    let masters = 0..stack.redis().masters();
    let answers: Vec<_> = masters.clone().map(|number| stack.redis().ask(number, "GET fg:schema")).collect();
    for number in masters.clone() {
        stack.redis().ask(number, "SET fg:schema 1000");
    }
    let mut older = stack.key_services[0].settings().clone();
    older.data = folder.path().to_owned();
    let log = Server::refuses(&older).await;
    assert!(log.contains("error: FAREGATE_STORE") && log.contains("layout 1000"), "{log}");
    for number in masters {
        stack.redis().ask(number, "SET fg:schema 2");
    }
    let log = Server::refuses(&older).await;
    assert!(log.contains("error: FAREGATE_STORE") && log.contains("earlier version"), "{log}");
    for (number, answer) in answers.iter().enumerate() {
        // The line before it contains the length.
        let layout = answer.lines().nth(1).unwrap();
        stack.redis().ask(number, &format!("SET fg:schema {layout}"));
    }
}
