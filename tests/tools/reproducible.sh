#!/bin/sh
# Builds the programs twice, from copies of the committed source in two folders, and compares them byte by byte.
# Arguments are passed to cargo. With --profile dev, a trial takes only minutes. The programs stay below target/reproducible.
# As in the Dockerfile, they are built with cargo-auditable. PROFILE names the file of a PGO profile, from a release or from
# `tests/tools/pgo.sh profile`. Without PROFILE, the programs are built without PGO.
set -eu
cd "$(dirname "$0")/../.."

. tests/tools/auditable.sh

[ $# -gt 0 ] || set -- --release
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
unset CARGO_TARGET_DIR
profile=${PROFILE:+-Cprofile-use=$(realpath "$PROFILE")}
host=$(rustc -vV | sed -n 's/^host: //p')
cargo_home=${CARGO_HOME:-$HOME/.cargo}
programs='faregate inference-gateway key-service local-model'

for copy in a b; do
  folder=$PWD/target/reproducible/$copy
  rm -rf "$folder"
  # The folders' names differ in length. A path that remains in a program therefore makes the two builds differ.
  source=$folder/source$([ $copy = a ] || echo -in-another-folder)
  mkdir -p "$source"
  git archive HEAD | tar -x -C "$source"
  # shellcheck disable=SC2046,SC2086 # several arguments
  maps="$source=/faregate $folder/built=/faregate/target $cargo_home=/cargo"
  (cd "$source" && RUSTFLAGS="$(printf -- ' --remap-path-prefix=%s' $maps) $profile" CFLAGS=$(printf -- ' -ffile-prefix-map=%s' $maps) \
    cargo auditable build --locked --target "$host" --target-dir "$folder/built" "$@" $(printf ' --package %s' $programs))
  mkdir -p "$folder/programs"
  for program in $programs; do
    find "$folder/built/$host" -maxdepth 2 -type f -name "$program" -exec mv {} "$folder/programs/" \;
  done
  (cd "$folder/programs" && sha256sum $programs) | tee "$folder/sha256"
done
cmp target/reproducible/a/sha256 target/reproducible/b/sha256
echo 'both builds are the same, byte for byte'
