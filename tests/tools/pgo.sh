#!/bin/sh
# Builds the programs optimised by a profile of their own work, below target/pgo: a quarter fewer instructions a request.
#
#   tests/tools/pgo.sh            # builds, works, and builds again: target/pgo/faregate.profdata, and target/pgo/programs
#   tests/tools/pgo.sh profile    # the profile alone
#
# The work needs a redis-server. A profile belongs to a version of the compiler, whose `llvm-tools` are installed where they are missing.
set -eu
cd "$(dirname "$0")/../.."
unset CARGO_TARGET_DIR
folder=$PWD/target/pgo
host=$(rustc -vV | sed -n 's/^host: //p')
profdata=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata
[ -x "$profdata" ] || rustup component add llvm-tools
flags=${RUSTFLAGS:-}

# With a target, build scripts and macros are left out of the profile.
build() {
  RUSTFLAGS="$flags $1" cargo build --release --locked --target "$host" --target-dir "$folder/$2" \
    --package faregate --package inference-gateway --package key-service --package local-model $3
}

rm -rf "$folder/raw"
build "-Cprofile-generate=$folder/raw" trained '--package bench --package tests'
"$folder/trained/$host/release/bench" train
"$profdata" merge --output "$folder/faregate.profdata" "$folder/raw"
[ "${1:-}" != profile ] || exit 0

build "-Cprofile-use=$folder/faregate.profdata" built ''
mkdir -p "$folder/programs"
for program in faregate inference-gateway key-service local-model; do
  cp "$folder/built/$host/release/$program" "$folder/programs/"
done
