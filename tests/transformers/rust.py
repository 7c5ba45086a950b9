"""Opens a folder's model, and runs the test `tests/training/transformers.rs` on a folder of cases."""

import json
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMAND = ["cargo", "test", "--locked", "--test", "training", "--", "transformers", "--ignored", "--nocapture"]


def run(folder, **how):
    return subprocess.run(COMMAND, cwd=ROOT, env=dict(os.environ, MESHWRIGHT_TRANSFORMERS=folder), **how)


def opened(binary, folder, seq):
    """The parameters of a folder's model on sequences of `seq` tokens, or the message that refuses it."""
    command = [binary, "estimate", folder, "--gpus", "8", "--seq", str(seq), "--global-batch", "64", "--format", "json"]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        first = run.stderr.splitlines()[0]
        return first.replace(os.path.join(folder, "config.json") + ": ", "").split("; there are ")[0]
    return json.loads(run.stdout)["predicted"]["parameters"]
