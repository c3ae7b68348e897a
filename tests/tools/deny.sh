#!/bin/sh
# Checks licences, sources and advisories of all dependencies against deny.toml. Builds cargo-deny below tests/ if it is missing, in two
# minutes. The advisory database comes from GitHub; if it cannot be reached, the script says so and checks the rest.
set -eu
cd "$(dirname "$0")/../.."

version=0.20.2
tools="$PWD/tests/.tools"
deny="$tools/bin/cargo-deny"
if [ "$("$deny" --version 2> /dev/null)" != "cargo-deny $version" ]; then
  # Without optimisation it builds faster, and still runs within seconds.
  CARGO_PROFILE_DEV_DEBUG=0 cargo install --locked --debug --quiet --root "$tools" "cargo-deny@$version"
fi

"$deny" check --hide-inclusion-graph licenses bans sources
if "$deny" fetch db; then
  "$deny" check --hide-inclusion-graph advisories
else
  echo 'NOT CHECKED: advisories, because their database cannot be fetched from github.com' >&2
fi
