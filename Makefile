# run    serve, on the embedded store
# check  formatting, lints, documentation, licences and advisories
# test   install what the tests need that is missing, then run them all
# bench  measure CPU per request beside a bare proxy

.PHONY: run check test bench

run:
	cargo run --release

check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

# The end-to-end tests start the programs themselves, so these are built first.
test:
	tests/tools/install.sh
	cargo build --workspace --bins
	cargo test --workspace

bench:
	cargo build --release --workspace --bins
	target/release/bench
