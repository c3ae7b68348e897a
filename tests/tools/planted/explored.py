"""Faults for the models that visit every state of a small installation."""

LEDGER = "key-service/domain/src/ledger.rs"
STATE = "key-service/domain/src/ledger/state.rs"
FUNDS = "key-service/domain/src/ledger/funds.rs"
BATCH = "key-service/ledger/src/batch.rs"
VIEW = "key-service/ledger/src/view.rs"
EXPLORED = "key-service/explorer"
SERVICES = f"{EXPLORED}/src/protocol/services.rs"
GATEWAYS = f"{EXPLORED}/src/protocol/gateways.rs"
LEASE_CLOCK = "key-service/domain/src/lease_clock.rs"
TWICE = "protocol::facts::no_order_of_messages_bills_twice_however_often_they_arrive"
CRASHES = "protocol::facts::no_order_of_messages_and_crashes_bills_twice"
ACTS = "protocol::facts::acts_of_the_owner_take_effect_at_once_among_messages_in_any_order"
REVOKED = "protocol::facts::nothing_is_admitted_or_said_to_be_after_a_revocation"
MIDNIGHT = "protocol::facts::a_request_is_billed_once_while_clocks_pass_midnight_apart"
LEASES = "leases::an_unrenewed_hold_lives_for_a_lease_of_time_in_which_the_ledger_answered"

# By the package whose tests catch them: name, file, correct text, replacement, and the test that fails.
FAULTS = {
    "key-service-explorer": [
        ("the store writes half of each commit", "key-service/records/src/maps.rs",
         "        commit.writes.into_iter().for_each(|write| self.write(write));",
         "        let most = if self.records.is_empty() { usize::MAX } else { commit.writes.len() / 2 };\n"
         "        commit.writes.into_iter().take(most).for_each(|write| self.write(write));", TWICE),
        ("a question after a revocation is answered by a copy", VIEW,
         "guards.push(copy.guard(name));",
         "guards.extend(Some(copy.guard(name)).filter(|_| copy.write(name, revision).is_some()));", REVOKED),
        ("a capture that arrives twice is billed twice", FUNDS,
         "Ending::Captured | Ending::Late => settled,",
         "Ending::Captured | Ending::Late => {\n                self.bill(claim.chargeable.min(self.available(claim.at)), claim.at);\n                settled\n            }", TWICE),
        ("a late capture is billed beside the expiry", FUNDS,
         "self.bill(charged.left_after(settled.charged), claim.at);", "self.bill(charged, claim.at);", TWICE),
        ("a bill is earlier than the one before it, among clocks", FUNDS,
         "windows.chain(self.account.billed_at).filter(|at|", "windows.filter(|at|",
         MIDNIGHT),
        ("a hold that expired is opened again", BATCH,
         "if record == Record::None && is_remembered { self", "if false { self", TWICE),
        ("a release gives nothing back", LEDGER,
         "funds.give_back(&hold, 0);\n            Ok((Record::None", "let _ = &hold;\n            Ok((Record::None", TWICE),
        ("a key-service never learns what a conflict brought", VIEW,
         "self.copies.insert(name.clone(), Copy::of(record));", "let _ = (name, record);", TWICE),
        ("a key that moves takes its holds along, among messages", STATE,
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
    ],
}
