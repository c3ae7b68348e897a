//! The promises, checked after each commit and when the installation is at rest.

use std::ops::ControlFlow;

use domain::ledger::{Budget, Deposited, Ending, Outcome, Payer, Record, Refused, Settlement};
use ledger::{Outcomes, stepped::Books};
use shared::{
    ids::{GroupId, KeyId},
    money::NanoUsd,
};

use super::{
    gateways::is_done,
    ledger::groups,
    setup::{Setup, generation},
    state::{Phase, State},
};

type Promise = Result<(), String>;

/// Checks the promises about the books after a commit, compared with the books before it.
pub(super) fn after_commit(setup: &Setup, before: &State, books: &Books) -> Promise {
    let earlier = &*before.books;
    for (now, then) in budgets(books).zip(budgets(earlier)) {
        no_bound_is_passed(now, then)?;
    }
    let credit = books.account;
    if credit.credit < NanoUsd::ZERO || credit.held > credit.credit {
        return broken(format!("held is at most the credit, and no credit is below zero: {credit:?}"));
    }
    for (request, (now, then)) in books.generations.iter().zip(&earlier.generations).enumerate() {
        match now {
            Record::Open(_) if *then == Record::None => may_open(setup, before, request)?,
            Record::Closed(bill) => bill_is_of_what_was_served(setup, before, request, bill)?,
            Record::None | Record::Open(_) | Record::Deposited(_) => {}
        }
    }
    sums_are_balances(setup, books)
}

/// Lists the budgets of keys and groups.
fn budgets(books: &Books) -> impl Iterator<Item = &Budget> {
    books.keys.iter().map(|key| &key.budget).chain(books.groups.iter().map(|group| &group.budget))
}

/// Checks that no limit is exceeded, whatever the clocks show. A budget may be above its limit because the limit was
/// lowered or its raise has ended; then it spends and holds no more than before. A raise counts as running until a
/// commit notices its end.
fn no_bound_is_passed(now: &Budget, then: &Budget) -> Promise {
    let sum = |used: NanoUsd, held: NanoUsd| used.nanos() + held.nanos();
    let (spent, spent_before) = (sum(now.used, now.held), sum(then.used, then.held));
    let raised = now.bounds.as_ref().and_then(|bounds| bounds.limit_raised);
    let limit = now.limit.map(|limit| raised.map_or(limit, |raise| raise.amount));
    if limit.is_some_and(|limit| spent > limit.nanos() && spent > spent_before) {
        return broken(format!("used and held are at most the limit: {now:?} after {then:?}"));
    }
    let windows =
        |budget: &Budget| budget.bounds.as_ref().map_or(Vec::new(), |bounds| bounds.windows.clone());
    for (window, earlier) in windows(now).iter().zip(windows(then)) {
        let (spent, spent_before) = (sum(window.used, now.held), sum(earlier.used, then.held));
        if spent > window.amount.nanos() && spent > spent_before {
            return broken(format!("used and held are at most the window's amount: {now:?} after {then:?}"));
        }
    }
    let in_flight = now.bounds.as_ref().map(|bounds| (bounds.in_flight, bounds.max_in_flight));
    if let Some((in_flight, Some(most))) = in_flight
        && in_flight > most
    {
        return broken(format!("no more requests are in flight than may be: {now:?}"));
    }
    Ok(())
}

/// Checks that a hold is opened only for a key that may spend, and only while the gateway may still use the hold.
fn may_open(setup: &Setup, before: &State, request: usize) -> Promise {
    let key = &before.books.keys[usize::from(setup.requests[request].key)];
    if key.revoked_at.is_some() {
        return broken("nothing is admitted after a revocation");
    }
    if key.rotation.current > 0 {
        return broken("nothing is admitted by a credential that a rotation has ended");
    }
    if before.requests[request].is_over {
        return broken("no hold is opened after the time until which its authorization may take effect");
    }
    Ok(())
}

/// Checks that a bill is for the final usage, for a report that the gateway sent, or for nothing.
fn bill_is_of_what_was_served(setup: &Setup, before: &State, request: usize, bill: &Settlement) -> Promise {
    let (of, asked, cost) = (&before.requests[request], &setup.requests[request], bill.cost.nanos());
    let may_be = match bill.ending {
        Ending::Captured => of.has_finished && cost == asked.cost,
        Ending::Expired => {
            cost == 0 || of.has_reported && asked.extension.is_some_and(|(_, reported)| cost == reported)
        }
        Ending::Late => false,
    };
    if !may_be || bill.charged > bill.cost {
        return broken(format!("a bill is what was served: {bill:?}"));
    }
    Ok(())
}

/// Checks that entries of the journal, bills, holds and deposits add up to the balances.
fn sums_are_balances(setup: &Setup, books: &Books) -> Promise {
    for (request, record) in books.generations.iter().enumerate() {
        let entries: Vec<_> = books
            .journal
            .iter()
            .filter(|(of, _)| *of == generation(request))
            .map(|(_, entry)| entry)
            .collect();
        let billed: i64 = entries.iter().map(|entry| entry.delta.nanos()).sum();
        let captured = entries.iter().filter(|entry| entry.settlement.ending == Ending::Captured).count();
        let charged = if let Record::Closed(bill) = record { bill.charged.nanos() } else { 0 };
        if captured > 1 || entries.len() > 2 || billed != charged {
            return broken(format!("a generation is billed once: {entries:?}"));
        }
    }
    if !books.journal.is_sorted_by_key(|(_, entry)| entry.settlement.at) {
        return broken(format!("no bill is earlier than the one before it: {:?}", books.journal));
    }
    for (id, of) in setup.keys().zip(&books.keys) {
        let pays = |of: KeyId, _: [Option<GroupId>; 2]| of == id;
        budget_is_the_sum(&of.budget, books, pays)?;
    }
    for (id, of) in groups().zip(&books.groups) {
        let changes = deposits(books).filter_map(|deposited| deposited.wallet);
        let paid: i64 = changes.filter(|change| change.group == id).map(|change| change.change.nanos()).sum();
        let wallet = of.wallet.map_or(0, |wallet| wallet.paid.nanos());
        let limit = of.wallet.and_then(|wallet| wallet.opening.checked_add(wallet.paid));
        if wallet != paid || of.wallet.is_some() && limit != of.budget.limit {
            return broken(format!("the limit of a wallet is what was paid into it, {paid}: {of:?}"));
        }
        let pays = |_: KeyId, groups: [Option<GroupId>; 2]| groups.contains(&Some(id));
        budget_is_the_sum(&of.budget, books, pays)?;
    }
    let deposited: i64 = deposits(books).map(|deposited| deposited.amount.nanos()).sum();
    let (held, billed) = sums(books, |_, _| true);
    if books.account.credit.nanos() != setup.credit + deposited - billed {
        return broken(format!("credit is what deposits leave after all charges: {:?}", books.account));
    }
    if books.account.held.nanos() != held {
        return broken(format!("held of the account is the sum of open holds: {:?}", books.account));
    }
    Ok(())
}

/// Lists the payments and refunds that took effect.
fn deposits(books: &Books) -> impl Iterator<Item = &Deposited> {
    books.deposits.iter().filter_map(|record| match record {
        Record::Deposited(deposited) => Some(deposited),
        Record::None | Record::Open(_) | Record::Closed(_) => None,
    })
}

fn budget_is_the_sum(
    budget: &Budget,
    books: &Books,
    pays: impl Fn(KeyId, [Option<GroupId>; 2]) -> bool,
) -> Promise {
    let (held, billed) = sums(books, &pays);
    if budget.held.nanos() != held {
        return broken(format!("held is the sum of open holds, {held}: {budget:?}"));
    }
    if budget.used.nanos() != billed {
        return broken(format!("used is the sum of the journal's entries, {billed}: {budget:?}"));
    }
    Ok(())
}

/// Returns the sum of the open holds and the sum of the journal's entries of the payers that `pays` selects.
fn sums(books: &Books, pays: impl Fn(KeyId, [Option<GroupId>; 2]) -> bool) -> (i64, i64) {
    let holds = books.generations.iter().filter_map(|record| match record {
        Record::Open(hold) if pays(hold.payer.key, hold.payer.groups) => Some(hold.amount.nanos()),
        Record::Open(_) | Record::None | Record::Closed(_) | Record::Deposited(_) => None,
    });
    let of_payer = |payer: &Payer| pays(payer.key, payer.groups);
    let entries = books.journal.iter().map(|(_, entry)| entry);
    let billed = entries.filter(|entry| of_payer(&entry.settlement.payer)).map(|entry| entry.delta.nanos());
    (holds.sum(), billed.sum())
}

/// Checks that each answer, and each refusal, is right for the books at the moment when the commit is written.
pub(super) fn answers_are_of_the_present(outcomes: &Outcomes, expected: &Outcomes) -> Promise {
    let differs = |(outcome, expected): (&Result<Outcome, Refused>, &Result<Outcome, Refused>)| {
        if outcome == expected {
            return ControlFlow::Continue(());
        }
        let what = if outcome.is_err() { "a refusal" } else { "an answer" };
        ControlFlow::Break(format!("{what} is of the present: {outcome:?}, but {expected:?}"))
    };
    if outcomes.len() != expected.len() {
        return broken("every command has an outcome");
    }
    match outcomes.iter().zip(expected).try_for_each(differs) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(promise) => broken(promise),
    }
}

/// Checks that the books are the same as if the commands had run one after another, in the order of their commits.
pub(super) fn books_are_those_of_the_commands(books: &Books, expected: &Books) -> Promise {
    if books == expected {
        return Ok(());
    }
    broken(format!("the books are those of the commands: {books:?}, but {expected:?}"))
}

/// Checks that every request has been settled once and that no money is held, when the installation is at rest.
pub(super) fn at_rest(setup: &Setup, state: &State) -> Promise {
    let books = &state.books;
    for (request, (of, record)) in state.requests.iter().zip(&books.generations).enumerate() {
        let cost = setup.requests[request].cost;
        if !is_done(of.phase) {
            return broken(format!("request {request} is settled, not {:?}", of.phase));
        }
        let is_captured = |bill: &Settlement| bill.ending == Ending::Captured && bill.cost.nanos() == cost;
        let was_expired = books
            .journal
            .iter()
            .any(|(id, entry)| *id == generation(request) && entry.settlement.ending == Ending::Expired);
        let is_right = match record {
            Record::Open(_) | Record::Deposited(_) => false,
            Record::None => !of.has_finished,
            Record::Closed(bill) if of.phase == Phase::Done && of.has_finished => {
                let covered = cost.min(of.amount);
                is_captured(bill) && (was_expired || bill.charged.nanos() >= covered)
            }
            Record::Closed(bill) => of.has_finished || bill.ending == Ending::Expired,
        };
        if !is_right {
            return broken(format!(
                "what request {request} was served is billed exactly once: {of:?} {record:?}"
            ));
        }
    }
    let in_flight = |budget: &Budget| budget.bounds.as_ref().map_or(0, |bounds| bounds.in_flight);
    let is_idle = |budget: &Budget| budget.held == NanoUsd::ZERO && in_flight(budget) == 0;
    if books.account.held != NanoUsd::ZERO || !budgets(books).all(is_idle) {
        return broken(format!("no hold is left: {books:?}"));
    }
    Ok(())
}

fn broken(promise: impl Into<String>) -> Promise {
    Err(promise.into())
}
