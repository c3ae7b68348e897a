# run    serve, on the embedded store
# check  formatting, lints, documentation, generated code
# generate  write the messages of changed proto files anew
# test   install what the tests need that is missing, then run them all; FAST=1 for units and first facts, some minutes once it is built
# faults plant faults in a copy of the code, each of which a named test has to catch; the first run builds for long
# fuzz   feed parsers with edited examples for FUZZ_SECONDS each, or those that begin with FUZZ_ONLY alone; see docs/proof.md
# prove  kill, stop and starve the programs under load and compare the books to the nano-dollar; visit every state of larger models
#        than `test` does, and simulate more seeds; PROVE_MINUTES=30, PROVE_SEED=N repeats a run, PROVE_ONLY=load|model|simulation|store,
#        PROVE_BESIDE=FOLDER runs another version's programs beside, PROVE_STAGES=failover,sentinel,cluster chooses installations; see
#        docs/proof.md
# upgrade  upgrade a running installation from the commit FROM to this one, under load; builds both
# deny   licences, sources and advisories of what is built upon; builds cargo-deny where it is missing
# bench  measure CPU and memory of requests and streams beside a bare proxy, some ten minutes; BENCH=--quick for a minute
# pgo    build the programs optimised by a profile of their own work to target/pgo/programs, as the Dockerfile does; builds twice
# sbom   write what each program is made of to target/sbom
# reproducible  build the release twice in different folders, and compare bytes; REPRODUCIBLE="--profile dev" for a trial
# attack attack the programs on the loopback, some fifteen minutes, and print how they hold; ATTACK="--requests 10000" for less,
#        ATTACK="--only bodies,flood" for a part
# overshoot  compare what is served beyond small caps, by this and by rivals from package registries; OVERSHOOT=--quick for one run of this alone
# real   compare bills with the counters of a real llama-server and vLLM; builds and installs these once, which takes a quarter of an hour;
#        REAL="--servers llama --only caps,left" for a part
# compose run the containers of docker-compose.yml on a Docker engine, or on one that it makes, and check what they promise, some
#        ten minutes; COMPOSE="--only kept,backup" for a part

.PHONY: run check generate test faults fuzz prove upgrade deny bench attack overshoot real pgo sbom reproducible compose

run:
	cargo run

# The pure crates are checked once more by themselves: what they must not use is not even built then.
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

# Its own workspace, since nothing else needs a compiler of protobuf.
GENERATE = proto/generate/Cargo.toml
generate:
	cargo run --quiet --target-dir target/generate --manifest-path $(GENERATE)

# What a first version has to do: a key, its limit, a call, its bill, its end.
FIRST_FACTS = first_request:: management:: caps:: credentials:: wire:: start:: openapi::

# Tests that start programs wait more than they compute, so that two of them run at a time for each core.
TEST_THREADS ?= $(shell echo $$((2 * $$(nproc))))

# Tests of services that name the form of their Redis, which are the same over a cluster.
OF_ONE_FORM = $(addprefix --skip services::,cluster:: replicas:: faults::reboots:: faults::room::)

# The end-to-end tests start the programs themselves, so these are built first. Tests of services over one Redis also
# run over a cluster. No crate has tests in its documentation.
test:
	tests/tools/install.sh
	cargo build --profile checked --workspace --bins --tests
ifdef FAST
	cargo test --profile checked --workspace --lib
	cargo test --profile checked --workspace --test e2e -- --test-threads $(TEST_THREADS) $(FIRST_FACTS)
else
	cargo test --profile checked --workspace --lib --bins
	cargo test --profile checked --workspace --test '*' -- --test-threads $(TEST_THREADS)
	FAREGATE_TEST_REDIS=cluster cargo test --profile checked --workspace --test e2e -- --test-threads $(TEST_THREADS) services $(OF_ONE_FORM)
endif

faults:
	tests/tools/faults.py

# Two targets run at a time; each is also a test of its crate, which takes a second.
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
