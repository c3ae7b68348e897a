//! Faults of the script that makes keys of another gateway: each fails the case that it names.

use std::thread;

use futures_util::future::LocalBoxFuture;

use super::{EXPECTED_TO_FAIL, Mutant, print_no_panics_of_mutants, server};
use crate::store::{
    redis::IMPORT,
    suite::{moving, servers::RedisServer},
};

/// A case of the contract of stores.
type Case = for<'a> fn(&'a mut Mutant) -> LocalBoxFuture<'a, ()>;

fn is_found(store: &mut Mutant) -> LocalBoxFuture<'_, ()> {
    Box::pin(moving::an_import_makes_groups_and_keys_that_are_found_and_listed_like_others(store))
}

fn makes_each_once(store: &mut Mutant) -> LocalBoxFuture<'_, ()> {
    Box::pin(moving::imports_at_once_make_each_key_once(store))
}

fn is_complete(store: &mut Mutant) -> LocalBoxFuture<'_, ()> {
    Box::pin(moving::an_import_of_many_keys_is_complete(store))
}

/// Faults: name, correct text, replacement, and the case that fails.
const FAULTS: [(&str, &str, &str, Case); 10] = [
    (
        "a key that exists is made again",
        "if call('EXISTS', texts) == 0 then",
        "if true then",
        makes_each_once,
    ),
    ("the texts of a key are lost", "call('HSET', texts, unpack(ARGV, first_text, last))", "", is_found),
    ("a key is not listed", "call('ZADD', list, '0', text)\n    if group", "if group", is_found),
    (
        "a key is not listed in its group",
        "if group ~= account then call('ZADD', group, '0', text) end",
        "",
        is_found,
    ),
    (
        "the opening balance is lost",
        "call('HSET', account, opening, string.format('%.0f', key.used))",
        "",
        is_found,
    ),
    ("earlier spend does not rank", "call('ZADD', spenders, key.used, id)", "", is_found),
    ("a key is not counted", "call('HINCRBY', account, 'keys', '1')", "", is_found),
    (
        "a key leaves no events",
        "for n = at + 6, first_text - 1, 2 do append_event(ARGV[n], 'event', ARGV[n + 1]) end",
        "",
        is_found,
    ),
    (
        "an event is not in the index",
        "for _, entry in ipairs(index_entries(number, fields)) do redis.call('ZADD', INDEX, '0', entry) end",
        "",
        is_found,
    ),
    (
        "the next key takes the place of a group",
        "at, name = last + 1, name + 2",
        "at, name = last + 1, name + 1",
        is_complete,
    ),
];

/// Returns whether the case fails with this script. Its panics are expected, and not printed.
fn fails(server: &RedisServer, script: &str, case: Case) -> bool {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            case(&mut Mutant::of(server, |store| store.with_import(script)).await).await;
        });
    };
    thread::scope(|scope| {
        let mutant = thread::Builder::new().name(EXPECTED_TO_FAIL.into());
        mutant.spawn_scoped(scope, run).unwrap().join().is_err()
    })
}

#[test]
fn every_fault_planted_in_the_import_is_caught() {
    print_no_panics_of_mutants();
    let server = server();
    for (what, right, wrong, case) in FAULTS {
        assert_eq!(IMPORT.matches(right).count(), 1, "{what}");
        assert!(!fails(&server, IMPORT, case), "without the fault: {what}");
        assert!(fails(&server, &IMPORT.replace(right, wrong), case), "not caught: {what}");
    }
}
