"""Runs `meshwright models --check` on each family: the small model that it makes of a class's defaults is the class's.

    python3 tests/transformers/checked.py
    python3 tests/transformers/checked.py moshi xlm
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import defaults
import rust
import vary

# Keys that a file must state, besides those of `defaults.py`.
NEEDED = dict(
    defaults.NEEDED,
    minicpm3=dict(v_head_dim=64),
    cohere_compass_text=dict(rope_parameters=dict(full_attention=None)),
)


def check(binary, family):
    """What is wrong with a family; none if all of it is compared and equal."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(dict(NEEDED.get(family, {}), model_type=family), file)
        command = [binary, "models", "--check", folder, "--python", sys.executable, "--format", "json"]
        run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        return run.stderr
    unchecked = json.loads(run.stdout)["unchecked"]
    return "\n".join(unchecked)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("families", nargs="*", help="those that are checked; none: all")
    arguments.add_argument("--binary", default=os.path.join(rust.ROOT, "target", "debug", "meshwright"))
    options = arguments.parse_args()
    families = options.families or [name for name in vary.table(options.binary) if name != "rope"]
    wrong = {family: why for family in families if (why := check(options.binary, family))}
    for family, why in wrong.items():
        print(f"{family}: {why}")
    print(f"{len(families)} families were checked, {len(wrong)} with a complaint")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
