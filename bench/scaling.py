#!/usr/bin/env python3
"""Computes what an installation needs from measured costs, and prints the table of docs/scaling.md."""
from math import ceil

# Costs in microseconds of CPU, from docs/measurements.md: services over Redis, 64 requests at once.
GATEWAY_REQUEST = 66
GATEWAY_CHUNK = 43
KEY_SERVICE_REQUEST = 20
# 64 accounts with one request each at a time, so that no two requests share a commit: all of Redis' CPU, 48 of it in the script.
REDIS_REQUEST = 61
# Assumed, not measured: a query for lease time.
REDIS_TICK = 10

BUSY = 0.6  # planned load per core
GATEWAY_CORES = 4
LOOKS_PER_SECOND = 1  # by each key-service, for each account with holds
REQUESTS_PER_ACCOUNT = 10  # per second, from an active account


def cores(microseconds_per_second: float) -> float:
    return microseconds_per_second / 1e6 / BUSY


def row(requests: int, chunks: int) -> list[str]:
    accounts = max(1, requests // REQUESTS_PER_ACCOUNT)
    gateways = cores(requests * (GATEWAY_REQUEST + chunks * GATEWAY_CHUNK))
    key_services = max(2, ceil(cores(requests * KEY_SERVICE_REQUEST)))
    served = cores(requests * REDIS_REQUEST)
    swept = cores(accounts * key_services * LOOKS_PER_SECOND * REDIS_TICK)
    processes = max(2, ceil(gateways / GATEWAY_CORES))
    cells = [requests, chunks, accounts, processes, key_services, ceil(served + swept)]
    return [f"{cell:,}" for cell in cells] + [f"{swept / (served + swept):.0%}", f"{processes * GATEWAY_CORES:,}"]


def main() -> None:
    print("| requests a second | chunks each | accounts | gateways | key-services | Redis masters | of them for leases | sessions of a key-service |")
    print("|---|---|---|---|---|---|---|---|")
    for requests in (1_000, 10_000, 100_000, 1_000_000):
        for chunks in (0, 100):
            print("| " + " | ".join(row(requests, chunks)) + " |")


main()
