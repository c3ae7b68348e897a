#!/bin/sh
# Builds the programs with profile-guided optimisation (PGO) below target/pgo, which saves a quarter of the instructions per request.
#
#   tests/tools/pgo.sh            # builds, trains, and builds again: target/pgo/faregate.profdata, and target/pgo/programs
#   tests/tools/pgo.sh profile    # only the profile
#
# Training needs a redis-server. A profile fits only the version of the compiler that made it. The compiler's `llvm-tools` are installed if
# they are missing.
set -eu
cd "$(dirname "$0")/../.."
. tests/tools/auditable.sh
unset CARGO_TARGET_DIR
folder=$PWD/target/pgo
host=$(rustc -vV | sed -n 's/^host: //p')
profdata=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata
[ -x "$profdata" ] || rustup component add llvm-tools
flags=${RUSTFLAGS:-}
programs='faregate inference-gateway key-service local-model'

# All builds use the same packages, command and target, because the names of functions depend on all three. With an explicit target,
# cargo applies the flags neither to build scripts nor to macros, so these do not add to the profile.
build() {
  # shellcheck disable=SC2046,SC2086 # several arguments
  RUSTFLAGS="$flags $1" cargo auditable build --release --locked --target "$host" --target-dir "$folder/$2" $(printf ' --package %s' $programs)
}

rm -rf "$folder/raw"
build "-Cprofile-generate=$folder/raw" trained
cargo build --locked --package bench --package tests --bin bench --bin scripted-upstream
cp target/debug/bench target/debug/scripted-upstream "$folder/trained/$host/release/"
"$folder/trained/$host/release/bench" train
"$profdata" merge --output "$folder/faregate.profdata" "$folder/raw"
[ "${1:-}" != profile ] || exit 0

build "-Cprofile-use=$folder/faregate.profdata" built
mkdir -p "$folder/programs"
for program in $programs; do
  cp "$folder/built/$host/release/$program" "$folder/programs/"
done
