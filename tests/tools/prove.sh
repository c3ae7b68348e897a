#!/bin/sh
# Tests the promises of docs/proof.md for PROVE_MINUTES (30) in total. PROVE_ONLY selects parts, separated by commas:
#
# model       visits every state of small installations, and of larger ones if there are ten minutes
# store       tears append-only files of Redis and starts it three times, then expires holds that pass up to 3,840 thresholds,
#             each for an eighth of the time
# simulation  simulates the services for a quarter of the time, from seed PROVE_SEED on; only that seed with PROVE_MINUTES=0
# load        kills, stops and starves the release programs under load, and compares the books. PROVE_SEED repeats a run.
#             PROVE_BESIDE is a folder with another version's programs, which every second process then uses. PROVE_STAGES selects
#             installations, separated by commas: services, sqlite, failover, clocks, sentinel, cluster, lagging
#
# To add a part, add a function and its name to `parts`.
set -eu
cd "$(dirname "$0")/../.."

minutes=${PROVE_MINUTES:-30}
parts="model store simulation load"
# Minutes of all parts except the load.
model_minutes=0 store_minutes=0 simulation_minutes=0

model() {
    larger=
    if [ "${minutes%.*}" -ge 10 ]; then
        model_minutes=7 larger=--include-ignored
    fi
    cargo test --profile checked --package key-service-explorer --lib -- $larger --nocapture --test-threads 1
}

store() {
    each=$(awk "BEGIN { print $minutes / 2 }")
    if [ -z "${PROVE_ONLY:-}" ]; then
        each=$(awk "BEGIN { print $minutes / 8 }")
    fi
    store_minutes=$(awk "BEGIN { print 2 * $each }")
    PROVE_MINUTES=$each cargo test --profile checked --package key-service-records --lib -- --ignored --nocapture torn_at_random
    PROVE_MINUTES=$each cargo test --profile checked --package key-service-store --lib -- --ignored --nocapture sweeps_of_many_sizes
}

simulation() {
    simulation_minutes=$minutes
    if [ -z "${PROVE_ONLY:-}" ]; then
        simulation_minutes=$(awk "BEGIN { print $minutes / 4 }")
    fi
    PROVE_MINUTES=$simulation_minutes \
        cargo test --profile checked --package simulation --lib -- --ignored --nocapture
}

load() {
    cargo build --release --workspace --bins
    left=$(awk "BEGIN { print $minutes - $model_minutes - $store_minutes - $simulation_minutes }")
    target/release/prove --minutes "$left" ${PROVE_SEED:+--seed "$PROVE_SEED"} ${PROVE_BESIDE:+--beside "$PROVE_BESIDE"} \
        ${PROVE_STAGES:+--stages "$PROVE_STAGES"}
}

for part in $(echo "${PROVE_ONLY:-$parts}" | tr , ' '); do
    case " $parts " in
    *" $part "*) $part ;;
    *) echo "PROVE_ONLY: unknown part $part; choose from: $parts" >&2 && exit 1 ;;
    esac
done
