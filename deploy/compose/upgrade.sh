#!/bin/sh
# Replaces the services of an installation that runs with deploy/compose/two-of-each.yml, one after another, so that clients
# notice nothing. Back up and run `audit` first (docs/upgrade.md). From the folder of docker-compose.yml:
#
#   FAREGATE_VERSION=1.0.1 deploy/compose/upgrade.sh
#
# If you use more than these two Compose files, list all of them in COMPOSE_FILE, separated by colons. Each service has to become
# healthy before the next one stops; the script ends at the first service that does not. Run it again with the earlier version to go back.
# There is one demo model, so the script leaves it alone: `docker compose up --wait --no-deps local-model` replaces it, and
# requests to it fail meanwhile.
set -eu
export COMPOSE_FILE="${COMPOSE_FILE:-docker-compose.yml:deploy/compose/two-of-each.yml}"
for service in inference-gateway inference-gateway-b key-service key-service-b; do
  docker compose up --wait --no-deps "$service"
done
