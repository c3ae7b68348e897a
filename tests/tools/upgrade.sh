#!/bin/sh
# Upgrades a running installation from an earlier commit, such as the tag of the last release, to this checkout, one process after
# another, under load. Both must have the same layout of the store. Builds the earlier programs from the repository; the tests of
# rolling restarts then begin with them.
set -eu
cd "$(dirname "$0")/../.."

from=${1:?the commit to upgrade from}
place=target/previous
[ -d "$place/source" ] || git worktree add --detach "$place/source" "$from"
git -C "$place/source" checkout --quiet --detach "$from"
(cd "$place/source" && CARGO_TARGET_DIR=../build cargo build --workspace --bins)
cargo build --workspace --bins
FAREGATE_TEST_PREVIOUS=$PWD/$place/build/debug cargo test --package tests --test e2e rolling -- --nocapture
