"""Compares the tokens that `generate` adds with those of transformers on PyTorch, for layers that carry a state and for convolutions.

A model of the real class gets random weights and is saved; `meshwright train` takes a step of size zero from them, and `generate`
continues a text past the length of a sequence. PyTorch chooses each token by a whole forward of the last tokens, without a cache.

    python3 tests/transformers/generate.py --binary target/debug/meshwright
"""

import argparse
import json
import os
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch

import cases
from images import run
from train import model_of

# Tokens of a sequence, and those that are added: the text becomes longer than a sequence.
SEQ, ADDED = 24, 32
VOCABULARY = 257
PROMPT = "a state"
FAMILIES = ["mamba2", "qwen3-next", "kimi-linear", "lfm2"]
# Tokens whose logits are closer than this, relative to the spread of all, may change places by rounding.
APART = 1e-4


def likeliest(model):
    """The tokens that a model adds, and the smallest distance of the first two logits."""
    ids, nearest = list(PROMPT.encode()), float("inf")
    with torch.no_grad():
        for _ in range(ADDED):
            logits = model(input_ids=torch.tensor([ids[-SEQ:]]), use_cache=False).logits[0, -1]
            first, second = logits.topk(2).values
            nearest = min(nearest, ((first - second) / logits.std()).item())
            ids.append(int(logits.argmax()))
    return ids[len(PROMPT) :], nearest


def compare(binary, folder, name):
    family, options = next((family, options) for case, family, options in cases.CASES if case == name)
    model = model_of(family, dict(options, vocab_size=VOCABULARY), seed=3)
    hub, out, text = (os.path.join(folder, f"{name}{end}") for end in ("", "-out", ".txt"))
    model.save_pretrained(hub)
    with open(text, "w") as file:
        file.write("a state of a text " * 4000)
    run(binary, "train", hub, "--data", text, "--init-from", hub, "--out", out, "--seq", str(SEQ), "--global-batch", "1", "--steps", "1",
        "--save-every", "1", "--lr", "0", "--optimizer", "sgd", "--momentum", "0", "--weight-decay", "0", "--warmup", "0",
        "--final-eval-batches", "1", "--precision", "f32")
    told = run(binary, "generate", out, "--prompt", PROMPT, "--tokens", str(ADDED), "--temperature", "0", "--format", "json")
    ids, nearest = likeliest(model.eval())
    if nearest < APART:
        return [f"{name}: two tokens are {nearest:.1e} apart; take another seed"]
    own = json.loads(told)["ids"]
    print(f"{name}: {'as transformers' if own == ids else 'WRONG'}", flush=True)
    return [] if own == ids else [f"{name}: {own} are not {ids}"]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--binary", required=True)
    arguments = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong = [line for name in FAMILIES for line in compare(arguments.binary, folder, name)]
    print("\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
