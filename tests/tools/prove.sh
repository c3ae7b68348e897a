#!/bin/sh
# Proves what is promised, for PROVE_MINUTES (30) in all. PROVE_ONLY names one of the parts, or several with commas in between:
#
# model       visits every state of small installations; of larger ones too where there are ten minutes
# store       tears append-only files of Redis and starts it three times, then expires holds that pass up to 3,840 thresholds,
#             each for an eighth of the time
# simulation  simulates the services for a quarter of the time, from seed PROVE_SEED on; one seed with PROVE_MINUTES=0
# load        kills, stops and starves the release programs under load, and compares the books. PROVE_SEED repeats a run, and
#             PROVE_BESIDE names a folder with another version's programs, of which every second process then is;
#             PROVE_STAGES names installations, with commas in between: services, sqlite, failover, clocks,
#             sentinel, cluster, lagging
#
# A further part is a function of its name and a word in `parts`.
set -eu
cd "$(dirname "$0")/../.."

minutes=${PROVE_MINUTES:-30}
parts="model store simulation load"
# Minutes that other parts than the load take.
model_minutes=0 store_minutes=0 simulation_minutes=0

model() {
    larger=
    if [ "${minutes%.*}" -ge 10 ]; then
        model_minutes=7 larger=--include-ignored
    fi
    cargo test --profile checked --package key-service-model --lib -- $larger --nocapture --test-threads 1
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
    *) echo "PROVE_ONLY: there is no part $part; there are: $parts" >&2 && exit 1 ;;
    esac
done
