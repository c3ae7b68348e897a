"""Faults for the simulation of gateways and key-services."""

BOUNDS = "key-service/domain/src/ledger/bounds.rs"
VIEW = "key-service/ledger/src/view.rs"
FUNDS = "key-service/domain/src/ledger/funds.rs"
STORE = "tests/simulation/src/services/store.rs"
LANES = "key-service/ledger/src/lanes/leader.rs"
ORPHANS = "inference-gateway/holds/src/keys/orphans.rs"
SETTLEMENT = "inference-gateway/holds/src/settlement.rs"
RUNS = "key-service/store/src/store/books/runs.rs"
SEEDS = "seeds::a_thousand_seeds_keep_every_promise"

# By the package whose tests catch them: name, file, correct text, replacement, and the test that fails. The number is the first seed
# that broke a promise, in a version without torn store files and clock steps of hours.
FAULTS = {
    "simulation": [
        # 5
        ("what is only read is not guarded, among gateways", VIEW,
         "guards.push(copy.guard(name));",
         "guards.extend(Some(copy.guard(name)).filter(|_| copy.write(name, revision).is_some()));", SEEDS),
        # 24
        ("a capture that a gateway sends twice is billed twice", FUNDS,
         "Ending::Captured | Ending::Late => settled,",
         "Ending::Captured | Ending::Late => {\n                self.bill(claim.chargeable.min(self.available(claim.at)), claim.at);\n                settled\n            }",
         SEEDS),
        # 407
        ("what changes nothing is answered by a copy", LANES,
         "            let (outcomes, effects) = self.decide(lane, view, &part).await?;\n",
         "            let (outcomes, effects) = self.decide(lane, view, &part).await?;\n"
         "            if view.commit(Revision([0; 8]), Vec::new(), Vec::new()).writes.is_empty() {\n"
         "                return Ok(outcomes);\n            }\n", SEEDS),
        # 20
        ("a capture is not spooled", SETTLEMENT,
         "if let Some(spool) = holds.spool() {\n            let (hold",
         "if let Some(spool) = holds.spool().filter(|_| false) {\n            let (hold",
         SEEDS),
        # 788
        ("a capture from the spool is billed beside the expiry", FUNDS,
         "self.bill(charged.left_after(settled.charged), claim.at);", "self.bill(charged, claim.at);", SEEDS),
        # 5
        ("a clock that steps back brings back a raise that has ended", BOUNDS, "bounds.end_raises(now);\n        if", "if", SEEDS),
        ("a store goes on behind a torn file", STORE, "        *self.torn.lock() = None;\n", "", SEEDS),
        ("a bill of a clock days ahead is searched for in the order of time", RUNS,
         "first: store.money(account).await?.went_back.max(1)", "first: 1.max(0 * store.money(account).await?.went_back)", SEEDS),
        # 643
        ("an authorization whose answer was lost leaves its hold", ORPHANS,
         "if copies > u32::from(self.answered) {", "if copies > u32::MAX - u32::from(self.answered) {", SEEDS),
    ],
}
