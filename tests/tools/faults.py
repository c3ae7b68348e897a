#!/usr/bin/env python3
"""Mutation test of the ledger and its commits: each of these faults, planted in a copy of the code, fails the test that it names.

`faults.py` takes some twenty minutes; `faults.py WORD…` plants only the faults whose names contain one of the words.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "target" / "faults"
LEDGER = "key-service/domain/src/ledger.rs"
FUNDS = "key-service/domain/src/ledger/funds.rs"
BOUNDS = "key-service/domain/src/ledger/bounds.rs"
EVENTS = "key-service/domain/src/ledger/events.rs"
KEY = "key-service/domain/src/key.rs"
USAGE = "key-service/domain/src/usage.rs"
REPLAY = "key-service/domain/src/audit/replay.rs"
CALENDAR = "shared/src/calendar.rs"
LANES = "key-service/ledger/src/lib.rs"
BATCH = "key-service/ledger/src/batch.rs"
COPIES = "key-service/ledger/src/copies.rs"
CODEC = "key-service/ledger/src/codec.rs"
SCRIPT = "key-service/records/src/redis/commit.lua"

# Tests of the ledger over records.
MODEL = "every_history_has_the_outcomes_and_leaves_the_books_of_the_model"
PROCESSES = "processes_that_take_turns_at_an_account_decide_by_what_the_others_have_written"
# Models that visit every state of a small installation.
EXPLORED = "key-service/model"
SERVICES = f"{EXPLORED}/src/protocol/services.rs"
GATEWAYS = f"{EXPLORED}/src/protocol/gateways.rs"
LEASE_CLOCK = "key-service/domain/src/lease_clock.rs"
TWICE = "protocol::facts::no_order_of_messages_bills_twice_however_often_they_arrive"
CRASHES = "protocol::facts::no_order_of_messages_and_crashes_bills_twice"
ACTS = "protocol::facts::acts_of_the_owner_take_effect_at_once_among_messages_in_any_order"
REVOKED = "protocol::facts::nothing_is_admitted_or_said_to_be_after_a_revocation"
LEASES = "leases::an_unrenewed_hold_lives_for_a_lease_of_time_in_which_the_ledger_answered"

# Name, file, correct text, replacement, and the test that fails.
FAULTS = [
    ("a credential that a rotation ended may spend", FUNDS,
     "if !self.key.rotation.accepts(credential, self.now) {", "if false {",
     "rotation::a_refused_credential_opens_no_hold_and_what_was_admitted_goes_on"),
    ("a grace does not end", LEDGER,
     "self.previous_until.filter(|until| now < *until)", "self.previous_until",
     "rotation::both_credentials_spend_until_the_grace_is_over_and_the_older_one_never_again"),
    ("a grace ends late", LEDGER,
     "self.previous_until.filter(|until| now < *until)", "self.previous_until.filter(|until| now <= *until)",
     "rotation::both_credentials_spend_until_the_grace_is_over_and_the_older_one_never_again"),
    ("a grace ends at once", LEDGER,
     "|| credential.checked_add(1) == Some(self.current) && self.grace(now).is_some()", "",
     "rotation::both_credentials_spend_until_the_grace_is_over_and_the_older_one_never_again"),
    ("credentials before the previous one have a grace too", LEDGER,
     "credential.checked_add(1) == Some(self.current)", "credential < self.current",
     "rotation::within_a_grace_only_force_rotates_again_and_ends_the_oldest"),
    ("a hold that was admitted is asked for its credential again", LEDGER,
     "        (Command::Hold(_), Record::Open(hold)) => {\n",
     "        (Command::Hold(new), Record::Open(hold)) => {\n            funds.may_spend(new.credential)?;\n",
     "rotation::a_refused_credential_opens_no_hold_and_what_was_admitted_goes_on"),
    ("every rotation has a grace", KEY,
     "(!new.grace.is_zero()).then(|| now.plus(new.grace))", "Some(now.plus(new.grace))",
     "rotation::a_rotation_without_grace_has_no_previous_credential"),
    ("a rotation within a grace needs no force", KEY,
     "self.spend.rotation.grace(now).is_some() && !new.is_forced", "false",
     "rotation::within_a_grace_only_force_rotates_again_and_ends_the_oldest"),
    ("an expired key is rotated", KEY,
     "Status::Expired => return Err(KeyNotRotated::Expired),", "Status::Expired => {}",
     "rotation::a_key_that_has_ended_is_not_rotated"),
    ("a revoked key is rotated", KEY,
     "Status::Revoked => return Err(KeyNotRotated::Revoked),", "Status::Revoked => {}",
     "rotation::a_key_that_has_ended_is_not_rotated"),
    ("a revoked key shows a grace", KEY,
     "self.spend.rotation.grace(now).filter(|_| self.spend.revoked_at.is_none())", "self.spend.rotation.grace(now)",
     "rotation::a_revocation_ends_both_credentials"),
    ("keys of an archived parent may spend", FUNDS,
     "self.groups.iter().flatten().any(|(_, group)", "self.groups.iter().take(1).flatten().any(|(_, group)",
     "chain::an_archived_group_refuses_its_keys_and_those_of_child_groups"),
    ("a stream of an archived group goes on", FUNDS,
     "self.is_archived().then_some(Refusal::GroupArchived)", "None",
     "chain::an_archived_group_refuses_its_keys_and_those_of_child_groups"),
    ("a group that is missing is no group", FUNDS,
     "self.key.group != group || named != parent", "false",
     "chain::checks_of_groups_stand_between_those_of_key_and_credit"),
    ("a hold is set aside at the key alone", FUNDS,
     "for (_, budget) in self.budgets_mut() {\n            budget.turn_windows(now);\n            budget.held =",
     "for (_, budget) in self.budgets_mut().take(1) {\n            budget.turn_windows(now);\n            budget.held =",
     "chain::a_hold_is_set_aside_and_billed_at_every_level"),
    ("groups are not billed", FUNDS,
     "for (_, budget) in self.budgets_mut() {\n            budget.bill(",
     "for (_, budget) in self.budgets_mut().take(1) {\n            budget.bill(",
     "chain::a_hold_is_set_aside_and_billed_at_every_level"),
    ("a parent gets nothing back", FUNDS,
     "for (_, budget) in self.budgets_mut() {\n            budget.unbill(",
     "for (_, budget) in self.budgets_mut().take(2) {\n            budget.unbill(",
     "chain::an_expiry_and_its_correction_are_billed_at_every_level"),
    ("a parent does not bound what is available", FUNDS,
     "let of_budgets = self.budgets().map(", "let of_budgets = self.budgets().take(2).map(",
     "chain::the_tightest_level_bounds_holds_extensions_and_charges"),
    ("every refusal names the key", FUNDS,
     "Refused::LimitReached { level, resets_at }", "Refused::LimitReached { level: Level::Key, resets_at }",
     "chain::a_refusal_names_the_first_level_that_is_used_up"),
    ("a moved key takes its open holds along", LEDGER,
     "let groups = match (record.payer(), &key) {", "let groups = match (None::<&Payer>, &key) {",
     "chain::a_moved_key_leaves_open_holds_with_the_groups_they_were_opened_under"),
    ("a group has no parent", LEDGER,
     "let parent = find(group.as_ref().and_then(|(_, group)| group.parent))?;", "let parent = find(None)?;",
     "chain::a_hold_is_set_aside_and_billed_at_every_level"),
    ("a window does not turn", BOUNDS,
     "if beginning > self.start {", "if false {",
     "windows::a_window_that_is_used_up_renews_at_its_end"),
    ("a window turns back with the clock", BOUNDS,
     "if beginning > self.start {", "if beginning != self.start {",
     "windows::a_clock_that_steps_back_stays_in_the_window_that_has_begun"),
    ("a hold does not begin a window", FUNDS,
     "            budget.turn_windows(now);\n", "",
     "windows::what_a_clock_past_midnight_held_is_billed_to_the_new_day_by_a_clock_before_it"),
    ("what is held counts against no window", BOUNDS,
     "of_windows.fold(of_limit, NanoUsd::min)", "of_windows.fold(of_limit, |limit, _| limit)",
     "windows::a_hold_of_an_earlier_window_is_held_against_the_window_that_runs"),
    ("a late capture gives back to a later window", BOUNDS,
     "filter(|window| window.start <= at)", "filter(|window| window.start <= now)",
     "windows::what_a_late_capture_gives_back_is_taken_off_the_window_of_the_earlier_bill_alone"),
    ("a late capture gives nothing back to its window", BOUNDS,
     "filter(|window| window.start <= at)", "filter(|window| window.start < at && false)",
     "windows::what_a_late_capture_gives_back_is_taken_off_the_window_of_the_earlier_bill_alone"),
    ("a changed window forgets its spend", BOUNDS,
     "same.map_or(new, |same| Window { amount: *amount, ..*same })", "same.map_or(new, |_| new)",
     "windows::a_window_counts_from_the_time_at_which_it_was_set"),
    ("a window counts from before it was set", BOUNDS,
     "amount: *amount, start: now,", "amount: *amount, start: per.beginning(now),",
     "windows::a_late_capture_gives_nothing_back_to_a_window_set_after_the_bill"),
    ("the first window that renews is named", BOUNDS,
     ".max().map_or(Ok(())", ".min().map_or(Ok(())",
     "windows::the_refusal_names_the_time_at_which_everything_that_is_used_up_renews"),
    ("a rate refills twice as fast", BOUNDS,
     "let refilled = passed.saturating_mul(", "let refilled = 2 * passed.saturating_mul(",
     "rates::a_rate_admits_its_number_at_once_and_then_as_many_in_each_minute"),
    ("a clock that steps back refills a rate again", BOUNDS,
     "at: self.at.max(now)", "at: now",
     "rates::a_clock_that_steps_refills_nothing_twice"),
    ("an answer beyond the rate is forgiven", BOUNDS,
     ".clamp(0, MOST_TAKEN)", ".clamp(0, self.capacity())",
     "rates::an_answer_may_pass_the_rate_and_is_made_up_for"),
    ("a changed rate begins anew", BOUNDS,
     "rate.map_or(Self::new(per_minute, now), |rate| rate.at(now))", "Self::new(per_minute, now)",
     "rates::a_changed_rate_keeps_what_was_taken"),
    ("the prompt's bound stays counted", FUNDS,
     "        self.recount(hold.counted, tokens);\n        self.account.held", "        self.account.held",
     "rates::the_prompts_bound_counts_until_what_was_used_is_known"),
    ("a report of fewer tokens counts", FUNDS,
     "tokens(progress.usage).max(hold.counted.tokens)", "tokens(progress.usage)",
     "rates::the_prompts_bound_counts_until_what_was_used_is_known"),
    ("a request in flight never ends", FUNDS,
     "                budget.end_request();\n", "",
     "rates::requests_in_flight_end_by_capture_release_and_expiry"),
    ("a request that was not counted ends another", FUNDS,
     "if hold.counted.levels[level as usize] {", "if true {",
     "rates::a_bound_counts_the_requests_that_begin_after_it_was_set"),
    ("removed bounds forget what runs", BOUNDS,
     "(bounds != Bounds::default()).then(", "(Bounds { in_flight: 0, ..bounds.clone() } != Bounds::default()).then(",
     "rates::a_bound_counts_the_requests_that_begin_after_it_was_set"),
    ("a model that one list allows may be used", FUNDS,
     "self.model_lists().any(|models| !models.contains(model))",
     "self.model_lists().count() > 0 && self.model_lists().all(|models| !models.contains(model))",
     "rates::models_are_those_that_key_group_and_parent_allow"),
    ("tokens are judged before requests", FUNDS,
     "rate_limited(RateBound::Requests, requests, 1, self.now)\n"
     "            .or_else(|| rate_limited(RateBound::Tokens, tokens, prompt_tokens, self.now))",
     "rate_limited(RateBound::Tokens, tokens, prompt_tokens, self.now)\n"
     "            .or_else(|| rate_limited(RateBound::Requests, requests, 1, self.now))",
     "rates::models_come_before_requests_in_flight_then_requests_then_tokens_then_what_is_left"),
    ("the loosest rate is answered", BOUNDS,
     ".min_by_key(|limit|", ".max_by_key(|limit|",
     "rates::a_hold_answers_the_tightest_rates"),
    ("a readmitted request counts again", FUNDS,
     "bounds.count(tokens, readmitted, now);", "bounds.count(tokens, false, now);",
     "rates::a_readmitted_request_counts_once_for_requests_per_minute_and_anew_for_all_else"),
    ("the rate of a readmitted request refuses it", FUNDS,
     "bounds.requests_per_minute.filter(|_| !readmitted)", "bounds.requests_per_minute",
     "rates::a_readmitted_request_counts_once_for_requests_per_minute_and_anew_for_all_else"),
    ("a threshold is told beyond its border", EVENTS,
     "before < border && border <= after", "before < border && border < after",
     "thresholds::each_part_of_a_limit_is_told_by_the_bill_that_reaches_it"),
    ("a threshold is told by every bill beyond it", EVENTS,
     "before < border && border <= after", "border <= after",
     "thresholds::each_part_of_a_limit_is_told_by_the_bill_that_reaches_it"),
    ("borders of limits are rounded down", EVENTS,
     "let border = part(amount, *percent, true);", "let border = part(amount, *percent, false);",
     "thresholds::each_part_of_a_limit_is_told_by_the_bill_that_reaches_it"),
    ("a threshold is told once whatever its amount", EVENTS,
     "let numbers = [start.millis(), amount.nanos()]", "let numbers = [start.millis(), amount.nanos().min(0)]",
     "thresholds::each_part_of_a_limit_is_told_by_the_bill_that_reaches_it"),
    ("a hold that a limit refuses tells nothing", EVENTS,
     "return self.limit(holder, budget, WHOLE);", "return;",
     "thresholds::a_hold_that_a_limit_refuses_tells_the_limit_once"),
    ("a hold that the credit refuses tells nothing", EVENTS,
     "return self.credit(&state.account, 0);", "return;",
     "thresholds::the_credit_is_told_by_parts_of_the_last_deposit_s_balance"),
    ("a part of the credit is told beyond its border", EVENTS,
     "self.credit_before > border && after.credit <= border", "self.credit_before > border && after.credit < border",
     "thresholds::the_credit_is_told_by_parts_of_the_last_deposit_s_balance"),
    ("thresholds of the credit are told once for all deposits", EVENTS,
     "holder: Holder::Account(self.account), start: base.at,",
     "holder: Holder::Account(self.account), start: Timestamp::from_millis(0),",
     "thresholds::the_credit_is_told_by_parts_of_the_last_deposit_s_balance"),
    ("weeks begin on Sunday", CALENDAR,
     "num_days_from_monday", "num_days_from_sunday",
     "windows::each_length_of_window_turns_at_its_own_time"),
    ("a correction counts its upstream cost again", USAGE,
     "upstream_cost: difference(known.upstream_cost, known_before.upstream_cost),",
     "upstream_cost: known.upstream_cost,",
     "the_margin_counts_what_was_charged_where_the_upstream_cost_is_known"),
    ("an audit passes a window that did not turn", REPLAY,
     "self.start.is_some_and(|before| before < start)", "false",
     "a_window_used_what_its_entries_add_up_to"),
    ("what a command only reads is not guarded", COPIES,
     "guards.push(copy.guard());",
     "guards.extend(Some(copy.guard()).filter(|_| copy.write(revision).is_some()));", PROCESSES),
    ("what is changed without being read is not guarded", COPIES,
     "copy.next = Some(value);\n                if !copy.is_touched {", "copy.next = Some(value);\n                if false {",
     PROCESSES),
    ("a batch that is not written leaves its changes", COPIES,
     "        self.is_touched = false;\n        self.next = None;", "        self.is_touched = false;", PROCESSES),
    ("a conflict counts as a commit", LANES,
     "self.trim(lane, copies, events).await;\n                }\n                Ok(Some(()))\n            }\n            Committed::Conflict(present) => {\n"
     "                lane.take_over(copies, view, present);\n                Ok(None)",
     "self.trim(lane, copies, events).await;\n                }\n                Ok(Some(()))\n            }\n            Committed::Conflict(present) => {\n"
     "                copies.settle(revision);\n                Ok(Some(()))", PROCESSES),
    ("a conflict brings no records", COPIES,
     "copy.replace(record.as_ref());", "let _ = (&copy, record);", PROCESSES),
    ("the bill of an expiry is forgotten", BATCH,
     "if record == Record::None && is_remembered {", "if false {", MODEL),
    ("a late capture leaves the bill of the expiry", BATCH,
     "self.copies.set_expired(&Expired(id), Record::None);", "", MODEL),
    ("a sum that is needed late is not read", BATCH,
     "self.needs(Slot::OfPayer(of_payer.clone()));", "", MODEL),
    ("sums of groups are left out", BATCH,
     ".chain(group.map(SumOf::Group)) {\n            let sum = Sum(day, of);",
     ".chain(group.map(SumOf::Group)).take(1) {\n            let sum = Sum(day, of);", MODEL),
    ("an entry has the number of the one before", BATCH,
     "(entries + 1, kept.journal_entries)", "(entries, kept.journal_entries)", MODEL),
    ("an event has the number of the one before", BATCH,
     "(events + 1, self.events", "(events, self.events", MODEL),
    ("a threshold is told again", BATCH,
     "if copies.told(&name) != Some(None) {", "if false {", MODEL),
    ("a hold that ended stays due", BATCH,
     "writes.extend(before.map(|entry| Write::Leave(index, entry)));", "let _ = before;", MODEL),
    ("a hold is not found when it is due", BATCH,
     "writes.extend(after.map(|entry| Write::Enter(index, entry)));", "let _ = after;", MODEL),
    ("others do not learn that something expired", CODEC,
     "last_expiry: last_expiry.map_or(0, Timestamp::millis),", "last_expiry: { let _ = last_expiry; 0 },", PROCESSES),
    ("others do not learn what a hold counts", CODEC,
     "counted_tokens: counted.tokens,", "counted_tokens: 0,", PROCESSES),
    ("others do not learn that a bill is an estimate", CODEC,
     "estimated: *estimated,", "estimated: { let _ = estimated; false },", PROCESSES),
    ("Redis compares one revision of several", SCRIPT,
     "    place = place + 1\n", "",
     "redis::each_guard_that_does_not_hold_is_answered_with_the_record_and_nothing_is_written"),
    ("Redis takes a removed record for unchanged", SCRIPT,
     "if (record and sub(record, 1, 8) or ABSENT) ~= sub(", "if record and sub(record, 1, 8) ~= sub(",
     "redis::each_guard_that_does_not_hold_is_answered_with_the_record_and_nothing_is_written"),
    ("Redis writes half of a commit to a name of another type", SCRIPT,
     "{ [4] = 'ZCARD', [6] = 'ZCARD', [7] = 'XLEN' }", "{}",
     "a_name_of_another_type_fails_before_anything_is_written"),
    ("a question after a revocation is answered by a copy", COPIES,
     "guards.push(copy.guard());",
     "guards.extend(Some(copy.guard()).filter(|_| copy.write(revision).is_some()));", REVOKED),
    ("a capture that arrives twice is billed twice", FUNDS,
     "Ending::Captured => settled,",
     "Ending::Captured => {\n                self.bill(claim.chargeable.min(self.available()));\n                settled\n            }", TWICE),
    ("a late capture is billed beside the expiry", FUNDS,
     "self.bill(charged.left_after(settled.charged));", "self.bill(charged);", TWICE),
    ("a hold that expired is opened again", BATCH,
     "if record == Record::None && is_remembered {", "if false {", TWICE),
    ("a release gives nothing back", LEDGER,
     "funds.give_back(&hold, 0);\n            Ok((Record::None", "let _ = &hold;\n            Ok((Record::None", TWICE),
    ("a key-service never learns what a conflict brought", COPIES,
     "copy.replace(record.as_ref());", "let _ = (&copy, record);", TWICE),
    ("a key that moves takes its holds along, among messages", LEDGER,
     "let groups = match (record.payer(), &key) {", "let groups = match (None::<&Payer>, &key) {", ACTS),
    ("lease time runs while the ledger does not answer", LEASE_CLOCK,
     ".filter(|seen| seen.tick == tick && at.saturating_sub(seen.last) <= LONGEST_GAP)",
     ".filter(|seen| seen.tick == tick)", LEASES),
    ("two key-services advance the tick at once", LEDGER,
     "if *seen == Some(account.tick) {", "if seen.is_some() {", LEASES),
    ("a hold expires before its lease is over", LEDGER,
     "if hold.lease_until <= funds.account.tick =>", "if hold.lease_until <= funds.account.tick + 2 =>", LEASES),
    ("a late copy of an authorization is carried out", SERVICES,
     "        calls.retain(|(request, kind)| *kind != Kind::Hold || !self.requests[*request].is_over);\n", "", TWICE),
    ("a hold is released while its authorization may still take effect", GATEWAYS,
     "Phase::Doubtful if !state.is_authorizing(request) =>", "Phase::Doubtful =>", CRASHES),
]


# What the tests are built of.
CRATES = ["shared", "key-service/domain", "key-service/records", "key-service/ledger", "key-service/model"]
FOLDERS = [*CRATES, "config", "proto"]


def package(file, test):
    """The package whose tests catch the faults of a file: its own, and the domain's for what is shared. Or the model's."""
    if test.startswith(("protocol::", "leases::")):
        return "key-service-model"
    return "key-service-domain" if file.startswith("shared/") else "-".join(Path(file).parts[:2])


def main(words):
    faults = [fault for fault in FAULTS if not words or any(word in fault[0] for word in words)]
    copy()
    for tested in sorted({package(fault[1], fault[4]) for fault in faults}):
        if failed := failure(tested, None):
            sys.exit(f"the tests fail without a fault:\n{failed}")
    missed = [fault[0] for fault in faults if not is_caught(*fault)]
    for name in missed:
        print(f"not caught: {name}")
    print(f"{len(faults) - len(missed)} of {len(faults)} faults caught")
    sys.exit(1 if missed else 0)


def copy():
    """Copies the crates that the ledger needs, as a workspace of its own that keeps what was built before.

    The copies are new files, so that cargo sees which of them changed."""
    for folder in FOLDERS:
        shutil.rmtree(COPY / folder, ignore_errors=True)
        shutil.copytree(ROOT / folder, COPY / folder, copy_function=shutil.copyfile)
    shutil.copy(ROOT / "Cargo.lock", COPY)
    lines = (ROOT / "Cargo.toml").read_text().splitlines()
    members = {"members": f"members = {json.dumps(CRATES)}", "default-members": ""}
    lines = [members.get(line.split(" = ")[0], line) for line in lines]
    (COPY / "Cargo.toml").write_text("\n".join(lines))


def is_caught(name, file, right, wrong, test):
    path = COPY / file
    text = path.read_text()
    if text.count(right) != 1:
        sys.exit(f"{name}: the text to replace must occur exactly once in {file}")
    path.write_text(text.replace(right, wrong))
    caught = failure(package(file, test), test) is not None
    path.write_text(text)
    return caught


def failure(package, test):
    """Runs a package's tests, or one, and returns the output of a failure. A fault that does not compile is no fault."""
    command = ["cargo", "test", "--quiet", "--package", package, "--lib"]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(COPY / "target")}
    built = subprocess.run([*command, "--no-run"], cwd=COPY, env=environment, capture_output=True, text=True)
    if built.returncode != 0:
        sys.exit(built.stderr)
    ran = subprocess.run([*command, *([test] if test else [])], cwd=COPY, env=environment, capture_output=True, text=True)
    if " 0 passed" in ran.stdout and ran.returncode == 0:
        sys.exit(f"there is no test {test}")
    return None if ran.returncode == 0 else ran.stdout


main(sys.argv[1:])
