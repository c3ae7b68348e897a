#!/bin/sh
# Upgrades a running installation from an earlier commit (the last release's tag, say) to this checkout, one process after another,
# under load. The store must have the same layout in both. Builds the earlier programs from the repository, and lets the tests of
# rolling restarts start with them.
set -eu
cd "$(dirname "$0")/../.."

from=${1:?the commit to upgrade from}
place=target/previous
[ -d "$place/source" ] || git worktree add --detach "$place/source" "$from"
git -C "$place/source" checkout --quiet --detach "$from"
(cd "$place/source" && CARGO_TARGET_DIR=../build cargo build --workspace --bins)
cargo build --workspace --bins
FAREGATE_TEST_PREVIOUS=$PWD/$place/build/debug cargo test --package tests --test e2e rolling -- --nocapture
