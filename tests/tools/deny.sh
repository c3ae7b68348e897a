#!/bin/sh
# Checks licences, sources and advisories of all dependencies by deny.toml. cargo-deny is built below tests/ where it is missing, in
# two minutes. Its database of advisories comes from GitHub: where that is out of reach, this is said, and the rest is checked.
set -eu
cd "$(dirname "$0")/../.."

version=0.20.2
tools="$PWD/tests/.tools"
deny="$tools/bin/cargo-deny"
if [ "$("$deny" --version 2> /dev/null)" != "cargo-deny $version" ]; then
  # Without optimisation it is built sooner, and runs for seconds all the same.
  CARGO_PROFILE_DEV_DEBUG=0 cargo install --locked --debug --quiet --root "$tools" "cargo-deny@$version"
fi

"$deny" check --hide-inclusion-graph licenses bans sources
if "$deny" fetch db; then
  "$deny" check --hide-inclusion-graph advisories
else
  echo 'NOT CHECKED: advisories, since their database cannot be fetched from github.com' >&2
fi
