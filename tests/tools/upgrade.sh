#!/bin/sh
# Upgrades a running installation from an earlier commit, such as the tag of the last release, to this checkout, one process after
# another, under load. Both versions must have the same layout of the store. The earlier programs are built from the repository. The
# tests of rolling restarts then start these programs first, and replace them one after another.
set -eu
cd "$(dirname "$0")/../.."

from=${1:?the commit to upgrade from}
place=target/previous
[ -d "$place/source" ] || git worktree add --detach "$place/source" "$from"
git -C "$place/source" checkout --quiet --detach "$from"
(cd "$place/source" && CARGO_TARGET_DIR=../build cargo build --workspace --bins)
cargo build --workspace --bins
FAREGATE_TEST_PREVIOUS=$PWD/$place/build/debug cargo test --package tests --test e2e rolling -- --nocapture
