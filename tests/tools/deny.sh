#!/bin/sh
# Checks licences, sources and advisories of all dependencies against deny.toml. If cargo-deny is missing, builds it below tests/, which
# takes two minutes. The advisory database comes from GitHub; if GitHub cannot be reached, the script says so and checks the rest.
set -eu
cd "$(dirname "$0")/../.."

version=0.20.2
tools="$PWD/tests/.tools"
deny="$tools/bin/cargo-deny"
if [ "$("$deny" --version 2> /dev/null)" != "cargo-deny $version" ]; then
  # A build without optimisation is faster, and the program still runs within seconds.
  CARGO_PROFILE_DEV_DEBUG=0 cargo install --locked --debug --quiet --root "$tools" "cargo-deny@$version"
fi

"$deny" check --hide-inclusion-graph licenses bans sources
if "$deny" fetch db; then
  "$deny" check --hide-inclusion-graph advisories
else
  echo 'NOT CHECKED: advisories, because their database cannot be fetched from github.com' >&2
fi
