"""Compares random configurations of every family: a loss, all gradients, and weights after a step of the optimizer."""

import collections
import copy
import json
import os
import random
import re
import shutil
import tempfile
import time

from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import save_file
from transformers import CONFIG_MAPPING

import cases
import draw
import rust
import saved
import train
import vary

# Configurations that are written before the test runs on them: it takes a second to begin.
AT_ONCE = 38
# Steps of training, and those after which weights are compared.
STEPS, COMPARED = 2, 1
OUTCOMES = ("compared", "differ", "refused by the class", "refused here", "not steady")


def check(binary, first, count, seconds, keep):
    """The seeds of configurations that differ, from `first` on; prints each with the command that runs it again, and how many there were."""
    began, seed, wrong = time.monotonic(), first, []
    counts = {family: collections.Counter() for family in draw.families(binary)}
    while (count is None or seed < first + count) and (seconds is None or time.monotonic() - began < seconds):
        last = seed + AT_ONCE if count is None else min(seed + AT_ONCE, first + count)
        with tempfile.TemporaryDirectory() as scratch:
            wrong += batch(binary, range(seed, last), keep or scratch, counts)
        seed = last
    for family, of in counts.items():
        print(f"{family:20} " + ", ".join(f"{of[what]} {what}" for what in OUTCOMES))
    total = sum(counts.values(), collections.Counter())
    print(f"random configurations: {total['compared']} compared from seed {first} to {seed - 1}, {total['differ']} differ", flush=True)
    return wrong


def batch(binary, seeds, folder, counts):
    """The seeds of a few configurations that differ."""
    written = {}
    for seed in seeds:
        family, options, documents = draw.configuration(binary, seed)
        outcome = write(binary, folder, seed, family, options, documents)
        counts[family][outcome] += 1
        if outcome == "compared":
            written[str(seed)] = (family, options, documents)
    if not written:
        return []
    found = differing(folder, written)
    for seed, why in found.items():
        family, options, documents = written[seed]
        counts[family]["differ"] += 1
        print(f"\n{family}: {json.dumps(options)}\ndocuments: {json.dumps(documents)}\n{why}")
        print(f"    python3 tests/transformers/compare.py --random --first {seed} --count 1", flush=True)
    return list(found)


def write(binary, folder, seed, family, options, documents, layouts=1):
    """Writes a case for one device and some further layouts, and says what became of it."""
    how = dict(draws=2, steps=STEPS, compared=COMPARED, documents=documents)
    try:
        refusal = refused(binary, CONFIG_MAPPING[family](**copy.deepcopy(options)))
        steady = None if refusal else train.steady(lambda attempt: train.model_of(family, options, seed + 1000003 * attempt), **how)
    except (AssertionError, AttributeError, IndexError, KeyError, RuntimeError, StrictDataclassError, TypeError, ValueError) as why:
        print(f"seed {seed}, {family}: refused by the class: {str(why).splitlines()[0][:160]}")
        return "refused by the class"
    if refusal:
        print(f"seed {seed}, {family}: refused here: {refusal}\n    {json.dumps(options)}")
        return "refused here"
    if steady is None:
        return "not steady"
    model, (losses, norms, gradients, after, tokens) = steady
    known = cases.layouts(after)
    record = dict(sequences=train.SEQUENCES, seq=train.SEQ, steps=STEPS, compared=COMPARED, lr=train.LR, optimizer=train.ADAMW)
    fitting = [layout for layout in known if layout and fits(layout, options)]
    drawn = random.Random(seed).sample(fitting, min(layouts, len(fitting)))
    record.update(configs=["", *drawn], losses=losses, norms=norms, losses_bf16=[])
    file = saved.config_of(model.config, has_further=hasattr(model, "further"))
    # Where ranks share a sequence, each deals out its own tokens.
    if saved.has_experts(file):
        file["routing_group"] = train.SEQ // 4
    path = os.path.join(folder, str(seed))
    saved.save(model, os.path.join(path, "hub"), "1GB")
    for name, content in [("config.json", file), ("hub/config.json", file), ("case.json", record)]:
        with open(os.path.join(path, name), "w") as out:
            json.dump(content, out)
    tensors = dict(tokens)
    for kind, of in [("after", after), ("gradient", gradients)]:
        tensors.update({f"{kind}/{key}": tensor for key, tensor in of.items()})
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, os.path.join(path, "tensors.safetensors"))
    return "compared"


# Keys of the number of taps of convolutions.
TAPS = ("linear_conv_kernel_dim", "mamba_d_conv", "conv_kernel", "conv_L_cache", "conv1d_width")


def fits(layout, options):
    """True if heads, experts, layers and sequences can be split as a layout asks for."""
    keys = dict(key.split("=") for key in layout.split(",") if key)
    degree = {key: int(keys.get(key, 1)) for key in ("tp", "cp", "ep", "pp")}
    # Models of states alone have no heads of attention; their cases have two groups.
    heads = number(options, *vary.KV_HEADS) or number(options, *vary.HEADS) or 2
    experts = number(options, *vary.EXPERTS) or degree["ep"]
    layers = number(options, *vary.LAYERS) or 0
    stages = degree["pp"] * (2 if keys.get("schedule") == "zb-v" else 1)
    shares = degree["tp"] * (degree["cp"] if keys.get("cp_kind") == "ulysses" else 1)
    # A rank reads no further back than into the tokens of the rank before it.
    taps = number(options, *TAPS) or 1
    has_taps = taps - 1 <= train.SEQ // degree["cp"]
    return heads % shares == 0 and experts % degree["ep"] == 0 and layers + 2 >= stages and has_taps


def number(options, *names):
    """The first number that options have under one of some names, in objects of theirs, too; none if there is none."""
    found = [options.get(name) for name in names] + [number(part, *names) for part in options.values() if isinstance(part, dict)]
    return next((value for value in found if value), None)


def refused(binary, config):
    """The message that refuses a configuration; none if it opens."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(saved.config_of(config, has_further=False), file)
        found = rust.opened(binary, folder, train.SEQ)
    return found if isinstance(found, str) else None


def differing(folder, written):
    """What the test says about each configuration that differs."""
    run = rust.run(folder, capture_output=True, text=True)
    if run.returncode == 0:
        return {}
    found = collections.defaultdict(list)
    for line in (run.stdout + run.stderr).splitlines():
        name = re.match(r"(\d+) on `", line)
        if name and name[1] in written:
            found[name[1]].append(line)
    if found:
        return {seed: "\n".join(lines) for seed, lines in found.items()}
    if len(written) == 1:
        return {next(iter(written)): run.stdout + run.stderr}
    # It stopped at one of them.
    for seed in written:
        with tempfile.TemporaryDirectory() as alone:
            shutil.copytree(os.path.join(folder, seed), os.path.join(alone, seed))
            found.update(differing(alone, {seed: written[seed]}))
    return found
