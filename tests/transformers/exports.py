"""Loads what `tests/training/transformers.rs` has exported with transformers, and compares it with what was imported and trained."""

import json
import os

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import train
from train import reference

# How far logits and losses may be off, relative to the largest logit and to the loss.
LOGITS, LOSSES = 1e-4, 1e-5
# Ends of the names of decays that MiniMax's class saves.
DECAYS = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")


def check(folder):
    """What is wrong with the exports of all cases; prints how many there are."""
    wrong, loaded, worst = [], 0, 0.0
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        exported = [entry for entry in sorted(os.listdir(path)) if entry.startswith("exported") and not entry.endswith(".json")]
        if not exported:
            wrong.append(f"{name}: nothing was exported")
        for entry in exported:
            problems, off = compare(path, entry)
            wrong += [f"{name}/{entry}: {problem}" for problem in problems]
            loaded, worst = loaded + 1, max(worst, off)
    for line in wrong:
        print(f"export: {line}")
    print(f"{loaded} exports were loaded; losses are off by at most {worst:.1e}")
    return wrong


def load(path):
    model, info = AutoModelForCausalLM.from_pretrained(path, output_loading_info=True, dtype="auto")
    # The class leaves out the layers that predict further tokens.
    layers = getattr(model.config, "num_hidden_layers", 0)
    further = tuple(f"model.layers.{layers + number}." for number in range(getattr(model.config, "num_mtp_layers", 0)))
    if further:
        info["unexpected_keys"] = [name for name in info["unexpected_keys"] if not name.startswith(further)]
    # The class computes its decays from the configuration where a file has none.
    info["missing_keys"] = [name for name in info["missing_keys"] if not name.endswith(DECAYS)]
    problems = [f"{what}: {sorted(names)}" for what, names in info.items() if names]
    return model.eval(), problems


def close(gain, other):
    """Gains relative to 1 lose the last bits of small numbers: half a last place of a number below 4."""
    return (gain - other).abs().max() <= 2.0**-22


def compare(path, entry):
    """What is wrong with an export, and how far its loss is off."""
    model, problems = load(os.path.join(path, entry))
    tokens = load_file(os.path.join(path, "tensors.safetensors"))
    state = entry.removeprefix("exported-")
    if state.startswith("trained"):
        with open(os.path.join(path, entry + ".json")) as file:
            record = json.load(file)
        named = {name: tokens.get(f"{name}.{record['step']}") for name in ("tok", "lab", "pos")}
        with torch.no_grad():
            loss = train.losses_of(model, {name: numbers.long() for name, numbers in named.items() if numbers is not None})[0].item()
        off = abs(loss - record["loss"]) / record["loss"]
        if not off <= LOSSES:
            problems.append(f"the loss is {loss}, but was {record['loss']} when it was exported")
        return problems, off
    other, more = load(os.path.join(path, "hub" + state.removeprefix("first")))
    problems += [f"as saved by transformers: {problem}" for problem in more]
    theirs = dict(other.named_parameters())
    for key, tensor in model.named_parameters():
        is_relative = model.config.model_type.startswith(reference.RELATIVE) and "norm" in key
        if tensor.dtype != theirs[key].dtype or not (close if is_relative else torch.equal)(tensor, theirs[key]):
            problems.append(f"{key} is not as it was imported")
    with torch.no_grad():
        own, want = (of(input_ids=tokens["tok.0"].long(), use_cache=False).logits.float() for of in (model, other))
    if not (own - want).abs().max() <= LOGITS * want.abs().max():
        problems.append("the logits differ from those of the imported model")
    return problems, 0.0
