#!/bin/sh
# Installs what the tests need beside Rust and a C compiler, where it is missing: a redis-server, on Debian and its kin.
set -eu

command -v redis-server > /dev/null && exit 0
as_root=''
[ "$(id -u)" = 0 ] || as_root=sudo
$as_root apt-get update
# The tests start servers of their own; Debian's unit is not started where nothing supervises units.
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends redis-server
