"""Holds exports against the engines themselves: their parsers, their configuration classes and their checks, on a CPU.

    cargo build --release
    python3 tests/exports/engines.py target/release/meshwright

Draws plans and pinned configurations, exports them, and gives each export to the engine of the version that it names. The engine must accept
it, start as many processes as the plan has devices, and read from it what the plan states. An assumption of the prediction whose flags are
left out must be noticed (`--mutate`). Engines are installed from PyPI into `--environments`, which needs Python 3.12.
"""

import argparse
import collections
import datetime
import functools
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from engines import compare, draw, scripts

PACKAGES = {
    "megatron": ["megatron-core==0.19.2", "einops"],
    "megatron-bridge": ["megatron-core==0.19.2", "einops", "omegaconf", "hydra-core", "transformers>=5.8,<=5.12.1", "datasets", "rich", "six", "regex", "tqdm", "pyyaml",
                        "accelerate", "peft", "diffusers", "matplotlib", "ipython"],
    "nanotron": ["nanotron==0.4", "dacite", "pyyaml", "numpy", "tqdm", "datasets==3.6.0", "transformers", "torch"],
    "deepspeed": ["--no-binary", "deepspeed", "deepspeed==0.19.8"],
    "maxtext": ["jax", "flax", "optax", "omegaconf", "jinja2", "transformers", "tiktoken", "chex", "grain", "pathwaysutils"],
    "torchtitan": ["torchtitan==0.3.0", "datasets<4.8", "spmd_types==0.2.3", "torchao", "tiktoken"],
}
# Packages that ask for more than their configuration needs.
ALONE = {"megatron-bridge": ["megatron-bridge==0.6.2"], "maxtext": ["maxtext==0.2.5"]}
# Packages of gigabytes that engines use together, installed once into an environment of its own.
SHARED = ["torch"]
# Configuration classes of an engine by its versions, newest first. Those of other engines are in their readers.
CLASSES = {"torchtitan": {"0.3.0": "torchtitan.trainer:Trainer.Config", "0.2.2": "torchtitan.config.job_config:JobConfig", "0.1.0": "torchtitan.config_manager:JobConfig"}}
READERS = pathlib.Path(__file__).parent / "engines"
SITE = "lib/python3.12/site-packages"


def python_312():
    """A Python of the version that the engines need."""
    if found := shutil.which("python3.12"):
        works = subprocess.run([found, "-c", ""], capture_output=True)
        if works.returncode == 0:
            return [found]
    versions = subprocess.run(["pyenv", "versions", "--bare"], capture_output=True, text=True).stdout.split() if shutil.which("pyenv") else []
    for version in sorted(versions, reverse=True):
        if version.startswith("3.12."):
            root = subprocess.run(["pyenv", "root"], capture_output=True, text=True).stdout.strip()
            return [f"{root}/versions/{version}/bin/python"]
    sys.exit("the engines need Python 3.12: install python3.12, or `pyenv install 3.12`")


def environment(engine, folder):
    """The Python of an engine's environment, which is made if it is not there."""
    return installed(engine, PACKAGES[engine], folder, engine != "maxtext") / "bin/python"


def installed(name, packages, folder, shares):
    """The environment of some packages; one that shares finds the shared packages in theirs."""
    place, log = folder / name, folder / f"{name}.log"
    if (place / "installed").exists():
        return place
    shared = installed("shared", SHARED, folder, False) if shares else None
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{name}: installing {packages} into {place}", flush=True)
    with open(log, "w") as told:
        subprocess.run([*python_312(), "-m", "venv", place], check=True, stdout=told, stderr=told)
        if shared:
            (place / SITE / "shared.pth").write_text(f"{shared / SITE}\n")
        done = subprocess.run([place / "bin/pip", "install", "--no-cache-dir", *packages], stdout=told, stderr=told)
        if alone := ALONE.get(name):
            subprocess.run([place / "bin/pip", "install", "--no-deps", *alone], check=True, stdout=told, stderr=told)
    if done.returncode:
        sys.exit(f"{name}: {packages} cannot be installed, see {log}")
    (place / "installed").touch()
    return place


class Engine:
    """A process that reads jobs with the engine's own code."""

    def __init__(self, name, folder):
        self.name = name
        self.errors = tempfile.TemporaryFile("w+")
        python = environment(name, folder)
        self.process = subprocess.Popen([python, READERS / f"read_{name.replace('-', '_')}.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True)

    def read(self, job):
        """`{"why", "read"}` of a job."""
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            sys.exit(f"{self.name}: its reader ended:\n{self.errors.read()[-2000:]}")
        return json.loads(line)


def meshwright(binary, *words):
    """Status, output and complaints of a command."""
    done = subprocess.run([binary, *words], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def prediction(binary, case, folder):
    """The answer of `plan` or `estimate` for a case, in a file that `export` takes; `None` with a reason if the case is none."""
    place = folder / "plan.json"
    status, text, said = meshwright(binary, case["command"], *case["words"], "--format", "json")
    if status:
        return None, said.strip().splitlines()[0] if said.strip() else f"exit status {status}"
    place.write_text(text)
    plan = json.loads(text)
    if plan["beyond_stack"]:
        return None, f"beyond the stack: {plan['beyond_stack'][0]['item']}"
    return plan, None


@functools.cache
def traits(binary, stack):
    """What a stack's file states of the framework's code."""
    _, text, _ = meshwright(binary, "stacks", stack, "--format", "json")
    return json.loads(text)["traits"]


class Tally:
    """What a run found."""

    def __init__(self):
        self.counts, self.wrong, self.notes, self.none = collections.Counter(), [], collections.Counter(), collections.Counter()

    def complain(self, label, what):
        """Counts a fault, and tells it at once."""
        self.wrong.append(f"{label}: {what}")
        print(self.wrong[-1], flush=True)

    def told(self, name):
        counts = self.counts
        lines = [f"{name}: {counts['exported']} exports ({counts['plan']} of plans), {counts['mutants']} assumptions left out, {counts['noted']} of plans with a note, {counts['left']} drawn cases are no configurations"]
        lines += [f"  note {count}: {note}" for note, count in self.notes.most_common(20)]
        lines += [f"  no configuration {count}: {why}" for why, count in self.none.most_common(8)]
        return "\n".join(lines + [f"  {len(self.wrong)} faults"])


# Least share of plans whose export states all that they predict.
STATED = 0.95


def hold_plans(binary, name, count, rng):
    """Holds plans for an engine's stacks against their exports; `True` if enough of them export without a note.

    What the code of a model states is no difference, nor is a model that the engine's flags do not state.
    """
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        for case in draw.requests(name, rng):
            if tally.counts["exported"] + tally.counts["lost"] == count:
                break
            stated(binary, name, case, tally, pathlib.Path(folder))
    print(tally.told(name), flush=True)
    exact = tally.counts["exported"] - tally.counts["noted"]
    print(f"  {exact} of {count} plans export without a note", flush=True)
    return exact >= STATED * count


def named(case):
    """The command of a case."""
    return f"{case['command']} {' '.join(case['words'])}"


def stated(binary, name, case, tally, folder):
    """The export of a plan with the traits of its stack; `None`, counted, if there is none."""
    label = named(case)
    plan, why = prediction(binary, case, folder)
    if plan is None:
        tally.counts["left"] += 1
        tally.none[why[:150]] += 1
        return None
    export = [str(folder / "plan.json")] if case["command"] == "plan" else case["words"]
    status, text, said = meshwright(binary, "export", *export, "--to", name, "--launch", case["launch"], "--format", "json")
    if status:
        tally.counts["lost"] += 1
        tally.none[said.strip()[:200]] += 1
        if case["command"] == "plan":
            tally.complain(label, f"its own export is refused: {said.strip()[:300]}")
        return None
    answer = json.loads(text)
    answer["stack"] = traits(binary, plan["inputs"]["stack"])
    tally.counts["exported"] += 1
    tally.counts[case["command"]] += 1
    tally.notes.update(f"{note['key']}: {note['text']}" for note in answer["notes"])
    differs = [note["key"] for note in answer["notes"] if note["grade"] != "code" and note["key"] != "model"]
    if differs and case["command"] == "plan":
        tally.counts["noted"] += 1
        print(f"{label}: {', '.join(differs)}", flush=True)
    return plan, answer


def run(binary, engine, cases, tally, mutate):
    """Holds each case against the engine."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for case in cases:
            one(binary, engine, case, tally, mutate, folder)


def one(binary, engine, case, tally, mutate, folder):
    exported = stated(binary, engine.name, case, tally, folder)
    if exported is None:
        return
    (plan, answer), label = exported, named(case)
    job = scripts.job(engine.name, plan, answer["text"], case, folder)
    read = engine.read(job)
    wrong = [read["why"]] if read["why"] else compare.differences(engine.name, plan, answer, read["read"], job)
    for what in wrong:
        tally.complain(label, what)
    # Megatron-Bridge's exports are Python, which its own container writes as YAML.
    written = (read["read"] or {}).get("yaml", answer["text"])
    if what := read_back(binary, engine.name, plan, {**answer, "text": written}, folder):
        tally.complain(label, what)
    if mutate and not wrong:
        tally.counts["mutants"] += mutants(engine, case, plan, answer, folder, tally, label)


# Names of the files that exports are read back from, where they are no scripts.
FILES = {"megatron-bridge": "run_config.yaml", "torchtitan": "planned.py", "nanotron": "run.yaml", "deepspeed": "ds_config.json", "maxtext": "run.yml"}


def read_back(binary, engine, plan, answer, folder):
    """What differs between a plan and the estimate of its own export; `None` if seconds and bytes are equal."""
    lossless = all(note["key"] == "model" for note in answer["notes"])
    if not lossless:
        return None
    inputs, script = plan["inputs"], folder / FILES.get(engine, "run.sh")
    script.write_text(answer["text"])
    # YAML of Megatron-Bridge names no stack.
    named = ["--stack", inputs["stack"]] if engine == "megatron-bridge" else []
    words = [inputs["model"], *named, "--cluster", inputs["cluster"], "--seq", str(inputs["seq"]), "--gpus", str(scripts.devices(plan)), f"--from-{engine}", str(script), "--format", "json"]
    status, text, said = meshwright(binary, "estimate", *words)
    if status:
        return f"its export cannot be read back: {said.strip()[:300]}"
    again = json.loads(text)
    figures = [(it["predicted"]["step_time_s"], it["predicted"]["memory_gib"]) for it in (plan, again)]
    if figures[0] != figures[1]:
        return f"read back it takes {figures[1][0]} s, not {figures[0][0]}; {again['inputs']['parallel']} of {plan['inputs']['parallel']}"
    # Graphs belong to a stack, which YAML of Megatron-Bridge does not name.
    is_of_stack = "--cuda-graph-impl" if engine == "megatron-bridge" else None
    complaints = [line for line in said.splitlines() if "not modelled" in line and not (is_of_stack and is_of_stack in line)]
    return f"read back: {complaints[0]}" if complaints else None


def mutants(engine, case, plan, answer, folder, tally, label):
    """Leaves out one assumption after another: each must be noticed, by the engine or by the comparison."""
    for assumed in answer["assumed"]:
        job = scripts.job(engine.name, plan, scripts.without(answer["text"], assumed), case, folder, answer["text"])
        read = engine.read(job)
        if not read["why"] and not compare.differences(engine.name, plan, answer, read["read"], job):
            tally.complain(label, f"nothing notices that `{assumed['name']}` is left out")
    return len(answer["assumed"])


def former(package, folder):
    """The unpacked wheel of a version that is not the installed one."""
    place = folder / package.replace("==", "-")
    if not place.exists():
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--python-version", "3.12", "--only-binary", ":all:", "-d", place, package], check=True)
        (wheel,) = place.iterdir()
        zipfile.ZipFile(wheel).extractall(place)
    return place


def version_of(name):
    """The pinned version of an engine."""
    pinned = next(package for package in ALONE.get(name, []) + PACKAGES[name] if "==" in package)
    return pinned.split("==")[1]


def write_flags(name, folder):
    """Writes the flags of an engine's own parser, or the keys of its configuration classes, for the importer."""
    python = environment(name, folder)
    sources = CLASSES.get(name) or {version_of(name): None}
    for version, path in sources.items():
        command = [python, READERS / "rows.py", path] if path else [python, READERS / f"read_{name.replace('-', '_')}.py", "--flags"]
        package = f"{name}=={version}"
        searched = {} if package in PACKAGES[name] else {"PYTHONPATH": str(former(package, folder))}
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **searched})
        if done.returncode:
            sys.exit(f"{package}: {done.stderr}")
        rows = json.loads(done.stdout.splitlines()[-1])
        place = pathlib.Path(f"planner/exports/engines/{name}/{version}.json")
        place.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
        print(f"{place}: {len(rows)} rows")


def check(name, path, folder, capability):
    """Whether an engine accepts a file, with what it reads of it."""
    text = path.read_text()
    devices = int(re.search(r"^\W*(\d+) devices", text, re.M)[1]) if name != "deepspeed" else 1
    plan = {"parallel": {"dp": devices, "tp": 1, "pp": 1, "cp": 1}, "inputs": {"model": ""}}
    if name == "deepspeed":
        stated = json.loads(text)
        plan["parallel"]["dp"] = stated["train_batch_size"] // stated["train_micro_batch_size_per_gpu"] // stated["gradient_accumulation_steps"]
    case = {"words": ["--cluster", {8: "a100", 9: "h100", 10: "b200"}[capability]]}
    with tempfile.TemporaryDirectory() as place:
        job = scripts.job(name, plan, text, case, pathlib.Path(place))
        return Engine(name, folder).read(job)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", nargs="?", default="target/release/meshwright")
    parser.add_argument("--flags", action="store_true", help="write the flags that each engine has, and end")
    parser.add_argument("--engine", nargs="+", default=list(PACKAGES), choices=list(PACKAGES))
    parser.add_argument("--count", type=int, default=40, help="exports of an engine")
    parser.add_argument("--plans", type=int, metavar="COUNT", help="hold this number of plans for an engine against notes of their exports, and end")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end an engine after this time, with fewer exports")
    parser.add_argument("--seed", type=int, default=int(datetime.date.today().strftime("%Y%m%d")), help="of the drawn cases; the date by default")
    parser.add_argument("--mutate", action="store_true", help="leave out assumptions one by one, too")
    parser.add_argument("--environments", type=pathlib.Path, default=pathlib.Path("target/engines"))
    parser.add_argument("--check", type=pathlib.Path, metavar="FILE", help="whether the engine accepts an export, and end")
    parser.add_argument("--capability", type=int, choices=[8, 9, 10], default=9, help="of the devices that --check answers for")
    options = parser.parse_args()
    if options.check:
        answer = check(options.engine[0], options.check, options.environments.resolve(), options.capability)
        print(f"refused: {answer['why']}" if answer["why"] else f"accepted: {json.dumps({key: value for key, value in answer['read'].items() if key != 'yaml'})}")
        sys.exit(bool(answer["why"]))
    if options.flags:
        for name in options.engine:
            write_flags(name, options.environments.resolve())
        return
    failed = False
    print(f"seed {options.seed}", flush=True)
    if options.plans:
        held = [hold_plans(options.binary, name, options.plans, random.Random(f"{options.seed} {name}")) for name in options.engine]
        sys.exit(not all(held))
    for name in options.engine:
        engine, tally = Engine(name, options.environments.resolve()), Tally()
        drawn = draw.cases(name, random.Random(f"{options.seed} {name}"))
        ends = time.monotonic() + options.seconds
        while tally.counts["exported"] < options.count and time.monotonic() < ends:
            run(options.binary, engine, [next(drawn)], tally, options.mutate)
        print(tally.told(name), flush=True)
        failed |= bool(tally.wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
