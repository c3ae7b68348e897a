#!/usr/bin/env python3
"""Runs the installation of docker-compose.yml on a real Docker engine, as documented, and checks it.

Uses the engine that this shell reaches. If that engine or its Compose is too old, sets up another one with engine.sh, which
needs Debian and root. Prints a line for each check, and exits with an error if a check fails. See README.md in this folder.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

from checks import CHECKS, Checks
from installation import Installation

ROOT = Path(__file__).parents[2]
NEEDED = ["faregate", "key-service", "inference-gateway", "local-model"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=ROOT / "target/release", help="folder with the programs to put into the images")
    parser.add_argument("--only", default="", help="comma-separated list of checks to run: " + ", ".join(CHECKS))
    parser.add_argument("--publish", default="127.0.0.1:8480", help="address and port to publish the installation at")
    asked = parser.parse_args()
    chosen = asked.only.split(",") if asked.only else list(CHECKS)
    if unknown := set(chosen) - set(CHECKS):
        parser.error(f"there is no check {', '.join(sorted(unknown))}")
    stand_ins = use_engine()
    if not stand_ins:
        keep_volumes()
    folder = Path(tempfile.mkdtemp(prefix="faregate-compose-"))
    checks = Checks()
    installation = Installation(folder, given_programs(asked.programs.resolve(), folder), asked.publish, stand_ins)
    try:
        installation.down()
        checks.run(installation, chosen)
    except BaseException:
        traceback.print_exc()
        checks.failed += 1
    finally:
        installation.down()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{checks.held} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed or not checks.held else 0)


def keep_volumes():
    """Exits if the engine has volumes of the projects that the checks use, since they would be deleted."""
    for project in ("faregate", "other"):
        listed = ["docker", "volume", "ls", "-q", "--filter", f"label=com.docker.compose.project={project}"]
        if subprocess.run(listed, check=True, capture_output=True, text=True).stdout:
            sys.exit(f"this engine has volumes of the project {project}, which the checks would delete: remove them, or use another engine")


def use_engine():
    """Finds or starts an engine for this process. Returns whether that engine has stand-ins for registry images."""
    if not is_new_enough():
        engine = Path(__file__).with_name("engine.sh")
        subprocess.run([engine, "start"], check=True)
        exports = subprocess.run([engine, "env"], check=True, capture_output=True, text=True).stdout
        for name, value in re.findall(r"(\w+)=(\S+)", exports):
            os.environ[name] = value.replace("$PATH", os.environ["PATH"])
    stand_in = subprocess.run(["docker", "image", "inspect", "localhost/stand-in/debian"], capture_output=True)
    return stand_in.returncode == 0


def is_new_enough():
    """Checks for engine 25 and Compose 2.24.4, which docs/run.md requires."""
    def version(*command):
        try:
            said = subprocess.run(command, capture_output=True, text=True, timeout=20)
        except (FileNotFoundError, subprocess.TimeoutExpired):
            return ()
        return tuple(int(part) for part in re.findall(r"\d+", said.stdout)[:3]) if said.returncode == 0 else ()

    engine = version("docker", "version", "--format", "{{.Server.Version}}")
    compose = version("docker", "compose", "version", "--short")
    return engine >= (25,) and compose >= (2, 24, 4)


def given_programs(programs, folder):
    """Makes a folder of the files that a release puts into images: the programs, LICENSE and NOTICE."""
    given = folder / "programs"
    given.mkdir()
    for name in NEEDED:
        if not (programs / name).exists():
            sys.exit(f"{programs} has no {name}: build it, or name another folder with --programs")
        shutil.copy2(programs / name, given)
    shutil.copy2(ROOT / "LICENSE", given)
    notice = subprocess.run([ROOT / "tests/tools/notice.sh"], check=True, capture_output=True)
    (given / "NOTICE").write_bytes(notice.stdout)
    return given


if __name__ == "__main__":
    main()
