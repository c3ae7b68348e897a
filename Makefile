# run    serve on the embedded store
# check  formatting, lints, documentation, generated code
# generate  regenerate the messages after a change of the proto files
# test   install missing test tools, then run the unit and end-to-end tests; FAST=1 for unit tests and the most important end-to-end
#        tests, in minutes
# test-slow  tests that take long: third-party clients and agents, every action in a browser, random requests and faults, and
#        services over the other form of Redis
# faults mutation tests: plant faults in copies of the code, each of which a named test must catch; the first run builds for long;
#        FAULTS="--part 1/3" for a third of them, FAULTS=WORD for those whose names contain a word
# fuzz   fuzz every parser for FUZZ_SECONDS each, or only the targets whose names begin with FUZZ_ONLY; see docs/proof.md
# prove  kill, stop and starve the programs under load and compare the books to the nano-dollar; explore larger models and
#        simulate more seeds than `test` does; PROVE_MINUTES=30, PROVE_SEED=N repeats a run, PROVE_ONLY=load|model|simulation|store,
#        PROVE_BESIDE=FOLDER mixes in another version's programs, PROVE_STAGES=failover,sentinel,cluster chooses installations;
#        see docs/proof.md
# upgrade  upgrade a running installation from the commit FROM to this one, under load; builds both
# deny   check licences, sources and advisories of dependencies; builds cargo-deny if it is missing
# bench  measure CPU and memory of requests and streams, compared with a bare proxy, in ten minutes; BENCH=--quick for a minute
# pgo    build the programs with profile-guided optimisation into target/pgo/programs, as the Dockerfile does; builds twice
# sbom   write the list of crates in each program to target/sbom
# reproducible  build the release twice in different folders, and compare bytes; REPRODUCIBLE="--profile dev" for a trial
# attack attack the programs on the loopback interface for about fifteen minutes, and print how they hold up;
#        ATTACK="--requests 10000" for less, ATTACK="--only bodies,flood" for a part
# overshoot  compare how far small caps are exceeded by Faregate and by rivals from package registries; OVERSHOOT=--quick for one run of
#        Faregate only
# real   compare bills with the counters of a real llama-server and vLLM; builds and installs these once, in a quarter of an hour;
#        REAL="--servers llama --only caps,left" for a part
# compose run the containers of docker-compose.yml on a Docker engine (set up if missing), and check what they promise, in about ten
#        minutes; COMPOSE="--only kept,backup" for a part

.PHONY: run check generate test test-slow faults fuzz prove upgrade deny bench attack overshoot real pgo sbom reproducible compose

run:
	cargo run

# The pure crates are also checked alone, so that only their own dependencies are built, without features that others enable.
check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo check --quiet --package key-service-domain --package key-service-moving --package inference-gateway-request --package inference-gateway-metering \
		--package inference-gateway-routing
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
	cargo fmt --manifest-path $(GENERATE) --check
	cargo run --quiet --target-dir target/generate --manifest-path $(GENERATE) -- --check
	tests/tools/words.py
	tests/tools/house.py
	tests/tools/faults.py --texts

# A separate workspace, since nothing else needs a protobuf compiler.
GENERATE = proto/generate/Cargo.toml
generate:
	cargo run --quiet --target-dir target/generate --manifest-path $(GENERATE)

# The most important tests: a key, its limit, a call, its bill, and revoking the key.
FIRST_FACTS = first_request:: management:: caps:: credentials:: wire:: start:: openapi::

# Slow tests that another test starts.
NOT_ALONE = --skip full_disk::on_a_small_disk
# Tests that choose their own form of Redis, which FAREGATE_TEST_SWAPPED does not change.
OF_ONE_FORM = $(addprefix --skip services::,cluster:: replicas:: faults::reboots:: faults::room::)

# The end-to-end tests start the programs, so these are built first. There are no doc tests.
test:
	tests/tools/install.sh
	cargo build --profile checked --workspace --bins --tests
	tests/tools/tests.py $(if $(FAST),-- $(FIRST_FACTS))

# Third-party clients and agents, every action in a browser, random requests and faults, and services over the other form of Redis.
test-slow:
	tests/tools/install.sh
	cargo build --profile checked --workspace --bins --test e2e
	tests/tools/tests.py --only e2e -- --ignored $(NOT_ALONE)
	FAREGATE_TEST_SWAPPED=1 tests/tools/tests.py --only e2e -- --include-ignored services $(OF_ONE_FORM)

faults:
	tests/tools/faults.py $(FAULTS)

# Two targets run at a time. Each target is also a test of its crate that takes a second.
FUZZ_SECONDS ?= 60
fuzz:
	FUZZ_SECONDS=$(FUZZ_SECONDS) RUST_BACKTRACE=0 nice cargo test --profile checked --workspace --lib --no-fail-fast \
		fuzz::$(FUZZ_ONLY) -- --test-threads 2

prove:
	tests/tools/prove.sh

upgrade:
	tests/tools/upgrade.sh $(FROM)

deny:
	tests/tools/deny.sh

bench:
	cargo build --release --workspace --bins
	target/release/bench $(BENCH)

pgo:
	tests/tools/pgo.sh

sbom:
	tests/tools/sbom.py target/sbom

reproducible:
	tests/tools/reproducible.sh $(REPRODUCIBLE)

attack:
	cargo build --release --workspace --bins
	target/release/attack $(ATTACK)

overshoot:
	cargo build --release --workspace --bins
	target/release/overshoot $(OVERSHOOT)

real:
	tests/tools/install.sh
	cargo build --release --workspace --bins
	tests/real/real.py $(REAL)

compose:
ifeq (,$(findstring --programs,$(COMPOSE)))
	cargo build --release --workspace --bins
endif
	tests/compose/compose.py $(COMPOSE)
