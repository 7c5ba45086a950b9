"""Compares a training step of `meshwright train` with PyTorch and JAX, on the same weights and batches.

    python3 -m pip install -r benches/peers/requirements.txt
    cargo build --profile dist --features full
    python3 benches/peers/run.py --write

Every setting runs in a process of its own, in turns, on the same cores. The table goes to standard output, progress to standard
error; `--write` also puts the table into docs/benchmarks.md. The exit status is 1 if a loss differs from Meshwright's, or if a
setting fails. Large models can be measured in runs of their own: `--keep` saves the results, and `--add` joins them.
"""

import argparse
import importlib.util
import os
import re
import signal
import sys
import tempfile

import batches
import machine
import report
import results
from cases import CASES, FOLDER
from measure import Bench
from settings import JAX, MESHWRIGHT, SETTINGS, TORCH, reason_against

MODULES = {TORCH: ["numpy", "torch"], JAX: ["numpy", "jax"], MESHWRIGHT: []}


def arguments():
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [case.name for case in CASES]
    parser.add_argument("--models", nargs="+", choices=names, default=names, help="models to train [default: all]")
    parser.add_argument("--only", nargs="+", default=[""], help="settings whose name has a match of a pattern [default: all]")
    parser.add_argument("--rounds", type=int, default=2, help="processes of each setting; 0: only --add [default: %(default)s]")
    parser.add_argument("--steps", type=int, help="measured steps of a process [default: that of the model]")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before those [default: %(default)s]")
    parser.add_argument("--limit", type=float, default=600, help="seconds for a process [default: %(default)s]")
    parser.add_argument("--threads", type=int, default=2, help="cores and threads [default: %(default)s]")
    parser.add_argument("--binary", help="meshwright [default: that of the profile dist, else of release]")
    parser.add_argument("--keep", help="folder for text, checkpoints and results.json [default: a temporary one]")
    parser.add_argument("--add", nargs="+", default=[], help="files results.json of earlier runs, to be in the table too")
    parser.add_argument(
        "--load",
        default="The load of the machine was not recorded.",
        help="sentence about what else ran on the machine [default: %(default)s]",
    )
    parser.add_argument("--write", action="store_true", help="replace the section of docs/benchmarks.md")
    options = parser.parse_args()
    options.binary = options.binary or built()
    return options


def built():
    """The binary of the fastest profile that has been built."""
    root = os.environ.get("CARGO_TARGET_DIR", os.path.join(FOLDER, "..", "..", "target"))
    paths = [os.path.join(root, profile, "meshwright") for profile in ("dist", "release")]
    found = next(filter(os.path.exists, paths), None)
    return found or sys.exit("meshwright is not built: run `cargo build --profile dist --features full`")


def chosen(only):
    """Settings that `--only` names, with those of Meshwright that they are compared with."""
    plain = lambda name: name.replace("`", "")
    named = [setting for setting in SETTINGS if any(re.search(part, plain(setting.name), re.I) for part in only)]
    needed = {setting.against for setting in named} | {(1, setting.precision) for setting in named}
    is_needed = lambda it: it.program == MESHWRIGHT and (it.devices, it.precision) in needed
    return [setting for setting in SETTINGS if setting in named or is_needed(setting)]


def check_modules(settings):
    """Ends the run if Python lacks a module that a setting needs."""
    needed = dict.fromkeys(module for setting in settings for module in MODULES[setting.program])
    missing = [module for module in needed if not importlib.util.find_spec(module)]
    if missing:
        with open(os.path.join(FOLDER, "requirements.txt")) as file:
            pinned = " ".join(file.read().split())
        sys.exit(f"{sys.executable} has no {' and no '.join(missing)}: run `python3 -m pip install {pinned}`")


def pin(threads):
    """Runs this process and its children on the first cores that it may use."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    if len(cores) < threads:
        sys.exit(f"--threads {threads}: there are only {len(cores)} cores")
    os.sched_setaffinity(0, cores)
    return cores


def measure(bench, table, options):
    """Measures all results in turns, and gives a result after each. A setting without a measured step is not tried again."""
    for number in range(1, options.rounds + 1):
        for result in table:
            tried = result.rounds and not result.seconds()
            if result.reason or tried:
                continue
            case, setting = result.case, result.setting
            print(f"round {number}: {case.name}, {setting.name}", end=" ", file=sys.stderr, flush=True)
            measured = bench.measure(case, setting, options.steps or case.steps)
            result.rounds.append(measured)
            seconds = measured.counted
            shown = f"{min(seconds):.3f} s" if seconds else measured.failure or "no step in time"
            print(f"{shown}, loss {measured.losses[-1] if measured.losses else '-'}", file=sys.stderr, flush=True)
            yield result


def main():
    options = arguments()
    settings = chosen(options.only)
    if not settings:
        sys.exit(f"no setting has that in its name: {'; '.join(setting.name for setting in SETTINGS)}")
    check_modules(settings)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    here, flags = machine.description(options.binary, pin(options.threads)), machine.processor()[1]
    earlier = [result for path in options.add for result in results.load(path, here)]
    table = [
        results.Result(case, setting, reason_against(setting, case, flags))
        for case in CASES
        for setting in settings
        if case.name in options.models
    ]
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options.binary, options.keep or scratch, options.threads, options.warm_up, options.limit)
        os.makedirs(bench.folder, exist_ok=True)
        with open(bench.text, "wb") as file:
            file.write(batches.text())
        for _ in measure(bench, table, options):
            results.save(os.path.join(bench.folder, "results.json"), here, table)
    found = report.Report(results.merged([*earlier, *table]))
    print(found.table(), end="")
    for line in found.wrong:
        print(f"error: {line}", file=sys.stderr)
    if options.write and not found.wrong:
        report.write(report.section(found, here, options.load))
    sys.exit(1 if found.wrong else 0)


if __name__ == "__main__":
    main()
