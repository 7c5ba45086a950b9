"""Compares losses, gradients and updates with those of transformers on PyTorch, family by family and layout by layout.

Small models of the real classes get random weights and train twenty steps, in f32 and again in bf16 with f32 copies of the
weights. The classes save them; tokens and results go next to them, and the test `tests/training/transformers.rs` reads the saved weights
and runs the same on ten layouts each. It exports its weights before and after the steps, and the classes load these: they must be
the same to the bit, and have the same losses. The table of keys is held against the real classes, too. Random configurations of every
family follow, and then examples of fine-tuning: chat templates, and labels of their own. Nothing is downloaded.

    python3 -m pip install -r tests/transformers/requirements.txt
    python3 tests/transformers/compare.py
    python3 tests/transformers/compare.py --random --seconds 3600 --first 1
"""

import argparse
import copy
import json
import os
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors.torch import save_file
from transformers import logging

import cases
import chat
import defaults
import draw
import drawn
import exports
import finetune
import rust
import saved
import table
import train


def made(name, family, options):
    """Makes the model of a case, by the number of an attempt."""

    def model(attempt):
        model = train.model_of(family, options, sum(map(ord, name)) + 1000 * attempt)
        if name.endswith(("far-router", "far-gate")):
            train.far(model)
        return model

    return model


def write(folder, name, family, options):
    documents = cases.DOCUMENTS.get(name)
    found = train.steady(made(name, family, options), documents=documents)
    if found is None:
        sys.exit(f"{name}: of {train.ATTEMPTS} models, none has losses that do not hang on rounding")
    model, (losses, norms, gradients, after, tokens) = found
    # One run may meet no tie of a router that rounding decides, and another the next.
    near = [copy.deepcopy(model), *(train.shaken(model, train.NOISE_BF16) for _ in range(train.DRAWS))]
    losses_bf16 = [train.trained(of, torch.bfloat16, documents=documents)[0] for of in near]
    tensors = dict(tokens)
    for kind, of in [("after", after), ("gradient", gradients)]:
        tensors.update({f"{kind}/{key}": tensor for key, tensor in of.items()})
    record = dict(sequences=train.SEQUENCES, seq=train.SEQ, steps=train.STEPS, compared=train.COMPARED, lr=train.LR)
    record.update(optimizer=train.ADAMW, configs=cases.layouts(after), losses=losses, norms=norms, losses_bf16=losses_bf16)
    for suffix, config in configs(name, model.config):
        path = os.path.join(folder, name + suffix)
        os.makedirs(path)
        with open(os.path.join(path, "config.json"), "w") as file:
            json.dump(config, file)
        with open(os.path.join(path, "case.json"), "w") as file:
            json.dump(record, file)
        for kind, dtype in [("hub", torch.float32), ("hub-bf16", torch.bfloat16), ("hub-f16", torch.float16)]:
            # Small files, so that most models have several.
            of_kind = copy.deepcopy(model).to(dtype)
            saved.save(of_kind, os.path.join(path, kind), "20KB" if dtype == torch.float32 else "1GB")
            with open(os.path.join(path, kind, "config.json"), "w") as file:
                json.dump(dict(config, dtype=str(dtype).removeprefix("torch.")), file)
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, os.path.join(path, "tensors.safetensors"))


def configs(name, config):
    """The files that say the same: as the class writes it, with keys left to their defaults, and as older versions did."""
    file = saved.config_of(config, has_further="further" in name)
    # Where ranks share a sequence, each deals out its own tokens; nothing is dropped, so that it does not matter.
    grouped = dict(file, routing_group=train.SEQ // 4) if saved.has_experts(file) else file
    yield "", grouped
    if name in cases.DEFAULTED:
        yield "-defaults", {key: value for key, value in file.items() if key not in cases.DEFAULTED[name]}
    if name in cases.OLDER:
        rope = dict(grouped["rope_parameters"])
        older = dict(grouped, rope_theta=rope.pop("rope_theta"), rope_scaling=None)
        del older["rope_parameters"]
        if rope["rope_type"] != "default":
            older["rope_scaling"] = dict(rope, type=rope.pop("rope_type"))
        yield "-older", older


def fixed(binary, only, keep, whole):
    """What is wrong with the cases of the list, and with the table of keys."""
    wrong = table.check(binary, cases.CASES)
    for line in wrong:
        print(f"table: {line}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = keep or scratch
        for name, family, given in cases.chosen(whole or only):
            if only in name:
                write(folder, name, family, given)
        print(f"{len(os.listdir(folder))} cases written", flush=True)
        is_right = rust.run(folder).returncode == 0
        return wrong + exports.check(folder) + ([] if is_right else ["tests/training/transformers.rs"])


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--binary", default=os.path.join(rust.ROOT, "target", "debug", "meshwright"))
    arguments.add_argument("--only", default="", help="cases whose name has this in it")
    arguments.add_argument("--whole", action="store_true", help="all cases, those of families that share all parts with others too")
    arguments.add_argument("--keep", help="write the cases into this folder, and leave them there")
    arguments.add_argument("--random", action="store_true", help="compare random configurations instead of the list")
    arguments.add_argument("--first", type=int, default=1, help="the seed of the first random configuration")
    arguments.add_argument("--count", type=int, help="how many there are")
    arguments.add_argument("--seconds", type=float, help="the time after which no more are drawn")
    options = arguments.parse_args()
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    if options.random:
        count = options.count or (None if options.seconds else len(draw.families(options.binary)))
        sys.exit(1 if drawn.check(options.binary, options.first, count, options.seconds, options.keep) else 0)
    wrong = fixed(options.binary, options.only, options.keep, options.whole)
    if not options.only:
        wrong += defaults.check(options.binary)
        wrong += drawn.check(options.binary, 1, len(draw.families(options.binary)), None, None)
        tuned = chat.check(options.binary) + finetune.check(options.binary)
        print("\n".join(tuned) or "examples of fine-tuning are equal")
        wrong += tuned
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
