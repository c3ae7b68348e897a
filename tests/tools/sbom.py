#!/usr/bin/env python3
"""Writes the crates of each program as CycloneDX 1.5 to a folder: sbom.py FOLDER.

Uses only `cargo metadata` and Cargo.lock, no network and no timestamps, so the same source gives the same bytes.
"""
import json
import pathlib
import subprocess
import sys
import tomllib
from urllib.parse import quote

PROGRAMS = ["faregate", "inference-gateway", "key-service", "local-model"]
ROOT = pathlib.Path(__file__).parents[2]
# Linked dependencies only, without those for building or testing.
TARGET = "x86_64-unknown-linux-gnu"


def metadata() -> dict:
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)


def linked(program: str, packages: dict) -> list[str]:
    """Returns the ids of the packages that a program links, starting with its own."""
    command = ["cargo", "tree", "--locked", "--package", program, "--target", TARGET]
    command += ["--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"]
    lines = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    named = dict.fromkeys(tuple(line.split()[:2]) for line in lines if line)
    by_name = {(package["name"], f"v{package['version']}"): id for id, package in packages.items()}
    return [by_name[name] for name in named]


def component(package: dict, checksums: dict) -> dict:
    name, version = package["name"], package["version"]
    made = {
        "type": "library",
        "bom-ref": f"{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:cargo/{quote(name)}@{quote(version)}",
    }
    if package["license"]:
        made["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if checksum := checksums.get((name, version)):
        made["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        made["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return made


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    all_of_it = metadata()
    packages = {package["id"]: package for package in all_of_it["packages"]}
    nodes = {node["id"]: node for node in all_of_it["resolve"]["nodes"]}
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    checksums = {(it["name"], it["version"]): it["checksum"] for it in lock["package"] if "checksum" in it}
    for program in PROGRAMS:
        ids = linked(program, packages)
        own, *others = [component(packages[id], checksums) for id in ids]
        reference = {id: f"{packages[id]['name']}@{packages[id]['version']}" for id in ids}
        depends = [
            {"ref": reference[id], "dependsOn": sorted({reference[d] for d in nodes[id]["dependencies"] if d in reference})}
            for id in ids
        ]
        bom = {
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {"component": own | {"type": "application"}},
            "components": sorted(others, key=lambda it: it["bom-ref"]),
            "dependencies": sorted(depends, key=lambda it: it["ref"]),
        }
        (folder / f"{program}.cdx.json").write_text(json.dumps(bom, indent=1) + "\n")
        print(f"{folder}/{program}.cdx.json: {len(others)} crates")


main()
