"""Runs the test `tests/training/transformers.rs` on a folder of cases."""

import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMAND = ["cargo", "test", "--locked", "--test", "training", "--", "transformers", "--ignored", "--nocapture"]


def run(folder, **how):
    return subprocess.run(COMMAND, cwd=ROOT, env=dict(os.environ, MESHWRIGHT_TRANSFORMERS=folder), **how)
