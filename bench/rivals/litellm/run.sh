#!/bin/sh
# Installs LiteLLM's proxy below target/, or serves it on a loopback port.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$here/../../../target/rivals/litellm

case $1 in
install)
    test -x "$folder/bin/litellm" || { python3 -m venv "$folder" && "$folder/bin/pip" install --quiet 'litellm[proxy]==1.108.7'; }
    ;;
serve)
    # The configuration names the module keys.py, which is in this folder.
    cd "$here"
    PYTHONDONTWRITEBYTECODE=1 LITELLM_TELEMETRY=False exec "$folder/bin/litellm" --config config.yaml --host 127.0.0.1 --port "$2" --telemetry False
    ;;
esac
