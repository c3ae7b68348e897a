# Sourced, in the root: puts cargo-auditable on the PATH, built below tests/ where it is missing. One that is installed already goes
# first: names of functions depend on its path, and a profile of the optimiser on the names.
tools=$PWD/tests/.tools
PATH=$PATH:$tools/bin
command -v cargo-auditable > /dev/null ||
  CARGO_PROFILE_DEV_DEBUG=0 cargo install --locked --debug --quiet --root "$tools" cargo-auditable@0.7.7
# What `--version` names; the same commit is built to the same bytes. Without git it names none.
FAREGATE_COMMIT=${FAREGATE_COMMIT:-$(git rev-parse --short=12 HEAD 2> /dev/null || true)}
export FAREGATE_COMMIT
