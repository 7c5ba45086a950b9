#!/usr/bin/env python3
"""Runs the tests of `cargo test`, two test binaries at a time.

Cargo runs one binary after another. A core then idles where the longest test of a binary runs alone; here the next binary uses it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

AT_ONCE = 2

# These take minutes each. They begin first, so that none of them runs alone at the end.
LONG = ["training", "programs", "planning", "checkpoints", "command_line", "meshwright_kernels"]


def built():
    """Builds the tests. Returns the binaries with the folders of their packages, in which cargo would run them."""
    command = ["cargo", "test", "--locked", "--no-run", "--message-format=json-render-diagnostics"]
    build = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    messages = map(json.loads, build.stdout.splitlines())
    tests = [m for m in messages if m["reason"] == "compiler-artifact" and m["profile"]["test"] and m["executable"]]
    rank = {name: at for at, name in enumerate(LONG)}
    ordered = sorted(tests, key=lambda m: (rank.get(m["target"]["name"], len(LONG)), m["executable"]))
    return [(m["executable"], os.path.dirname(m["manifest_path"])) for m in ordered]


def passes(test):
    """Runs a binary, prints what it printed and its seconds, and returns whether it passed."""
    binary, folder = test
    began = time.monotonic()
    run = subprocess.run([binary], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(f"\n{os.path.basename(binary)}: {time.monotonic() - began:.0f} s\n{run.stdout}", end="", flush=True)
    return run.returncode == 0


# A shell without job control starts what runs in the background with these signals ignored, and tests send them.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
began = time.monotonic()
tests = built()
print(f"\nbuilt in {time.monotonic() - began:.0f} s", flush=True)
with ThreadPoolExecutor(AT_ONCE) as pool:
    results = list(pool.map(passes, tests))
failed = [os.path.basename(binary) for (binary, _), passed in zip(tests, results) if not passed]
if failed or not tests:
    sys.exit(f"failed: {', '.join(failed) or 'no tests were built'}")
