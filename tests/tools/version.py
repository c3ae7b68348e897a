#!/usr/bin/env python3
"""Prints the version of the workspace."""
import pathlib
import tomllib

manifest = pathlib.Path(__file__).parents[2] / "Cargo.toml"
print(tomllib.loads(manifest.read_text())["workspace"]["package"]["version"])
