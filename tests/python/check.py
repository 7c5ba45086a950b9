"""Installs the wheel of `python/` into a fresh environment and tests it there.

    python3 -m pip install maturin
    maturin build --locked --manifest-path python/Cargo.toml --profile dev --out target/wheels
    cargo build --features full
    python3 tests/python/check.py target/wheels/meshwright-*.whl target/debug/meshwright

Answers are compared with those of the command, byte by byte. If this interpreter has PyTorch, and transformers, shardings and schedules
run in them too, on processes that gloo joins.
"""

import argparse
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

HERE = pathlib.Path(__file__).resolve().parent

def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("binary", type=pathlib.Path, help="the command of the same build")
    parser.add_argument("--largest", type=float, metavar="MB", help="refuse a larger wheel; a published one has at most 10 MB")
    asked = parser.parse_args()
    size = asked.wheel.stat().st_size
    print(f"{asked.wheel.name}: {size / 1e6:.1f} MB")
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = pathlib.Path(folder, "Scripts" if os.name == "nt" else "bin", "python")
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", asked.wheel.resolve()]
        subprocess.run(install, check=True)
        binary = asked.binary.resolve()
        tests = ["answers.py"]
        spec = importlib.util.find_spec("torch")
        packages = str(pathlib.Path(spec.origin).parent.parent) if spec else ""
        if spec:
            tests += ["schedules.py", "clusters.py"]
        if importlib.util.find_spec("transformers"):
            tests += ["shardings.py"]
        for test in tests:
            # The tests run outside the tree, so that they find the installed package.
            environment = os.environ | ({"PYTHONPATH": packages} if test != "answers.py" else {})
            subprocess.run([python, HERE / test, binary], check=True, cwd=folder, env=environment)
        skipped = [test for test in ("schedules.py", "clusters.py", "shardings.py") if test not in tests]
        print(f"passed: {', '.join(tests)}" + (f"; skipped without PyTorch and transformers: {', '.join(skipped)}" if skipped else ""))
    if asked.largest and size > 1e6 * asked.largest:
        sys.exit(f"the wheel is larger than {asked.largest} MB")


if __name__ == "__main__":
    main()
