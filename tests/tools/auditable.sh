# To be sourced in the repository's root. Puts cargo-auditable on the PATH, and builds it below tests/ if it is missing. If cargo-auditable
# is installed elsewhere, that program is used, because the names of functions depend on its path, and a PGO profile depends on the names.
tools=$PWD/tests/.tools
PATH=$PATH:$tools/bin
command -v cargo-auditable > /dev/null ||
  CARGO_PROFILE_DEV_DEBUG=0 cargo install --locked --debug --quiet --root "$tools" cargo-auditable@0.7.7
# The commit in `--version`, so that builds of the same commit are equal. Empty without git.
FAREGATE_COMMIT=${FAREGATE_COMMIT:-$(git rev-parse --short=12 HEAD 2> /dev/null || true)}
export FAREGATE_COMMIT
