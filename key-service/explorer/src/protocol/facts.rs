//! Proves the promises for small installations by visiting every reachable state. `docs/proof.md` has the results.
//!
//! The ignored tests are larger and take minutes: `make prove` runs them.

use super::setup::{Act, Asked, Setup};
use crate::explorer::{explore, explore_at_least};

/// A request that holds at most 40, asks to extend the hold to 50 while it reports a cost of 10, and costs 30 in the
/// end.
const ASKED: Asked =
    Asked { key: 0, gateway: 0, least: 10, most: 40, extension: Some((50, 10)), may_fail: true, cost: 30 };
/// The same request without an extension or an interruption: the upstream always answers and the gateway always waits.
const WHOLE: Asked = Asked { extension: None, may_fail: false, ..ASKED };
/// A request that costs more than was held.
const BEYOND: Asked = Asked { cost: 60, ..WHOLE };

const ACTS: [Act; 8] = [
    Act::Deposit,
    Act::Pay,
    Act::Refund(90),
    Act::Revoke,
    Act::Rotate,
    Act::LowerKey(20),
    Act::LowerGroup(20),
    Act::Move,
];

/// Returns a setup with one gateway, keys without limits, and no faults.
fn plain(requests: Vec<Asked>) -> Setup {
    let keys = requests.iter().map(|asked| asked.key).max().unwrap_or_default() + 1;
    Setup {
        credit: 100,
        limits: vec![None; keys.into()],
        is_grouped: false,
        group_limit: None,
        parent_limit: None,
        a_day: None,
        until_midnight: None,
        in_flight: None,
        gateways: 1,
        requests,
        acts: Vec::new(),
        checks: false,
        copies: 1,
        faults: 0,
        halves: false,
    }
}

/// Returns a setup with two keys in one group. The limit of the group's parent covers one and a half requests.
fn grouped(asked: Asked) -> Setup {
    let requests = vec![asked, Asked { key: 1, ..asked }];
    let limits = vec![Some(35); 2];
    Setup { limits, is_grouped: true, group_limit: Some(70), parent_limit: Some(60), ..plain(requests) }
}

/// Returns one request for each of two gateways, each with a different key.
fn of_two_gateways(asked: Asked) -> Vec<Asked> {
    vec![asked, Asked { gateway: 1, key: 1, ..asked }]
}

#[test]
fn no_order_of_messages_bills_twice_however_often_they_arrive() {
    explore_at_least("messages twice", &Setup { copies: 2, ..plain(vec![ASKED]) }, 2_000);
}

#[test]
fn no_order_of_messages_and_crashes_bills_twice() {
    explore_at_least("a fault", &Setup { faults: 1, ..plain(vec![ASKED]) }, 4_000);
    explore_at_least("a fault, beyond its hold", &Setup { faults: 1, ..plain(vec![BEYOND]) }, 400);
}

#[test]
fn requests_of_two_keys_and_gateways_pass_no_bound_of_key_group_parent_or_credit() {
    explore_at_least("a group and its parent", &grouped(WHOLE), 5_000);
    explore_at_least("the credit", &Setup { gateways: 2, ..plain(of_two_gateways(BEYOND)) }, 8_000);
}

#[test]
fn a_request_is_billed_once_while_clocks_pass_midnight_apart() {
    let setup = Setup { is_grouped: true, a_day: Some(45), ..plain(vec![ASKED]) };
    explore_at_least("a day", &setup, 2_000);
    let setup =
        Setup { is_grouped: true, group_limit: Some(20), until_midnight: Some(45), ..plain(vec![ASKED]) };
    explore_at_least("a raise until midnight", &setup, 2_000);
}

#[test]
fn acts_of_the_owner_take_effect_at_once_among_messages_in_any_order() {
    for act in ACTS {
        let (is_grouped, group_limit) = (act.needs_groups(), act.pays().then_some(60));
        let setup = Setup { acts: vec![act], is_grouped, group_limit, ..plain(vec![ASKED]) };
        explore_at_least(&format!("{act:?}"), &setup, 1_500);
    }
}

#[test]
fn nothing_is_admitted_or_said_to_be_after_a_revocation() {
    let setup = Setup { acts: vec![Act::Revoke], checks: true, ..plain(vec![ASKED]) };
    explore_at_least("a revocation and questions", &setup, 5_000);
}

#[test]
fn a_store_that_writes_half_of_a_commit_breaks_a_promise() {
    let setup = Setup { faults: 1, halves: true, ..plain(vec![ASKED]) };
    let broken = explore(&setup).expect_err("half of a commit is noticed");
    assert!(format!("{broken:?}").contains("Half"), "{broken:?}");
}

#[test]
#[ignore = "some minutes"]
fn large_messages_twice_and_faults() {
    explore_at_least("messages twice, a fault", &Setup { copies: 2, faults: 1, ..plain(vec![ASKED]) }, 1);
    explore_at_least("two faults", &Setup { faults: 2, ..plain(vec![ASKED]) }, 1);
}

#[test]
#[ignore = "some minutes"]
fn large_two_gateways_with_a_fault() {
    let asked = of_two_gateways(WHOLE);
    let setup = Setup { gateways: 2, is_grouped: true, group_limit: Some(60), faults: 1, ..plain(asked) };
    explore_at_least("two gateways, a fault", &setup, 1);
}

#[test]
#[ignore = "some minutes"]
fn large_two_requests_of_a_group_and_of_a_day() {
    let failing = Asked { may_fail: true, ..WHOLE };
    explore_at_least("a group and its parent, and failing upstreams", &grouped(failing), 1);
    let of_key = Setup { limits: vec![Some(60)], ..plain(vec![failing; 2]) };
    explore_at_least("a key, and failing upstreams", &of_key, 1);
    let setup = Setup { is_grouped: true, a_day: Some(60), in_flight: Some(1), ..plain(vec![WHOLE; 2]) };
    explore_at_least("two requests and a day", &setup, 1);
}

#[test]
#[ignore = "some minutes"]
fn large_acts_with_a_fault() {
    for act in ACTS {
        let (is_grouped, group_limit) = (act.needs_groups(), act.pays().then_some(60));
        let setup = Setup { acts: vec![act], is_grouped, group_limit, faults: 1, ..plain(vec![WHOLE]) };
        explore_at_least(&format!("{act:?}, a fault"), &setup, 1);
    }
}

#[test]
#[ignore = "some minutes"]
fn large_two_acts() {
    let setup = Setup { acts: vec![Act::Revoke, Act::Deposit], checks: true, ..plain(vec![ASKED]) };
    explore_at_least("a revocation and a deposit", &setup, 1);
    let acts = vec![Act::Pay, Act::Refund(90)];
    let setup = Setup { acts, is_grouped: true, group_limit: Some(60), ..plain(vec![ASKED]) };
    explore_at_least("a payment and a refund", &setup, 1);
    let setup = Setup {
        acts: vec![Act::LowerKey(20), Act::Move],
        is_grouped: true,
        group_limit: Some(60),
        ..plain(vec![ASKED])
    };
    explore_at_least("a lower limit and a move", &setup, 1);
}
