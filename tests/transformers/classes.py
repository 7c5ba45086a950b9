"""Writes docs/models.md: which causal classes of transformers open at their defaults, and what stops the others.

Each class of `AutoModelForCausalLM` writes the configuration of its defaults. Here that file is opened, and the parameters are counted
on both sides, those of the class on PyTorch's `meta` device, without weights.

    python3 tests/transformers/classes.py
"""

import argparse
import json
import os
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers
from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

import agreement
import rust
import saved
from train import reference

HEAD = """# Causal language models of `transformers`

Written by `tests/transformers/classes.py` with version {version}. Each class of `AutoModelForCausalLM` is opened at the defaults of its
configuration: {open} of {all} open. The count of parameters is that of both sides; where they differ, the class's stands behind it.
Where a class cannot be made at its own defaults, a dash stands for its count. Files of models that read images, too, open as their text
model.

The last columns compare a small model with random weights, in f32, with PyTorch: on one device and on layouts drawn from those of
`tests/transformers/cases.py`. They have the most that a loss is off, relative to it, and a gradient, relative to its norm.

| model_type | class | parameters, or what stops it | layouts | loss | gradient |
|---|---|---|---|---|---|
"""


def row(binary, family, name):
    """The last cell of a class, and whether it opens with the right count."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            config = CONFIG_MAPPING[family]()
            with open(os.path.join(folder, "config.json"), "w") as file:
                json.dump(saved.config_of(config, has_further=False), file)
        except Exception as why:
            return f"the class has no defaults: {str(why).splitlines()[0][:120]}", False
        found = rust.opened(binary, folder, 64)
    if isinstance(found, str):
        return found, False
    own = reference.outcome(reference.count, config)["value"]
    return f"{found:,}" + ("" if found == own else " (–)" if own is None else f" ({own:,})"), own in (found, None)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--binary", default=os.path.join(rust.ROOT, "target", "debug", "meshwright"))
    options = arguments.parse_args()
    rows = [(family, name, *row(options.binary, family, name)) for family, name in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items())]
    compared = agreement.compared(options.binary, [family for family, *_, opens in rows if opens])
    text = HEAD.format(version=transformers.__version__, open=sum(of[3] for of in rows), all=len(rows))
    with open(os.path.join(rust.ROOT, "docs", "models.md"), "w") as out:
        out.write(text + "".join(f"| {family} | {name} | {cell} | {agreement.cells(compared, family)} |\n" for family, name, cell, _ in rows))
    sys.exit(0 if all(is_right or not cell[0].isdigit() for *_, cell, is_right in rows) else 1)


if __name__ == "__main__":
    main()
