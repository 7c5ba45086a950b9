"""Runs the test `tests/transformers.rs` on a folder of cases."""

import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMAND = ["cargo", "test", "--locked", "--test", "transformers", "--", "--ignored", "--nocapture"]


def run(folder, **how):
    return subprocess.run(COMMAND, cwd=ROOT, env=dict(os.environ, MESHWRIGHT_TRANSFORMERS=folder), **how)
