"""Holds the table of keys of `meshwright models --keys` against the configuration classes of transformers."""

import copy
import dataclasses
import json
import subprocess

import torch
from transformers import CONFIG_MAPPING

from train import reference

# Keys whose absence means something else here, and why that changes no number.
OTHER_DEFAULTS = {
    ("deepseek_v3", "num_key_value_heads"): "latent attention takes no count but that of query heads",
    ("deepseek_v3", "num_mtp_layers"): "the class computes none of these layers",
    ("kimi_linear", "num_key_value_heads"): "latent attention takes no count but that of query heads",
    ("glm4_moe", "num_mtp_layers"): "the class computes none of these layers",
}

# Keys of the parts of models that read images.
PARTS = {"text_config", "vision_config"}

# Keys that change the order of elements in weights; reading undoes it, and the comparison has both values.
ORDER = {"rope_interleave"}

# The keys of bases of rotary frequencies that have another name.
THETAS = {
    "mellum": {"global": "rope_local_base_freq"},
    "gpt_neox": {"global": "rotary_emb_base"},
    "gemma3_text": {"local": "rope_local_base_freq"},
    "modernbert-decoder": {"global": "global_rope_theta", "local": "local_rope_theta"},
}

# Values that stop the class, stand for an empty thing, or round otherwise.
UNTOUCHED = {"chunk_size_feed_forward", "transformers_version", "dtype", "model_type", "is_encoder_decoder", "return_dict", "output_attentions"}


def check(binary, cases):
    """What is wrong with the table."""
    printed = subprocess.run([binary, "models", "--keys", "--format", "json"], check=True, capture_output=True, text=True)
    table = json.loads(printed.stdout)
    wrong = []
    for family, rows in table.items():
        if family == "rope":
            continue
        wrong += defaults(family, rows)
        # Encoders, and the models that have them, have cases in images.py.
        if not any(of == family for _, of, _ in cases):
            continue
        wrong += without_effect(family, rows, next(options for _, of, options in cases if of == family))
    return wrong


def defaults(family, rows):
    """Each key that the class has or writes is in the table, with its default."""
    cls = CONFIG_MAPPING[family]
    fields = {field.name: field.default for field in dataclasses.fields(cls)}
    fields.update({name: list(default) for name, default in fields.items() if isinstance(default, tuple)})
    wrong = []
    for name in [*fields, *cls.attribute_map, *cls().to_dict()]:
        row = rows.get(name)
        if name in PARTS:
            continue
        if row is None:
            wrong.append(f"{family}: the table lacks `{name}`")
        elif name in fields and row["done"] in ("read", "only") and (family, name) not in OTHER_DEFAULTS:
            here = row.get("default")
            if here != fields[name]:
                wrong.append(f"{family}: `{name}` is {fields[name]!r} in the class, {here!r} in the table")
    for alias, name in cls.attribute_map.items():
        row = rows.get(alias, {})
        if rows.get(name, {}).get("done") != "nothing" and row.get("done") == "alias" and row.get("of") != name:
            wrong.append(f"{family}: `{alias}` is another name of `{name}`, not of `{row.get('of')}`")
    theta = cls.default_theta if "rope_parameters" in fields else {}
    thetas = theta if isinstance(theta, dict) else {"global": theta}
    for kind, theta in thetas.items():
        name = THETAS.get(family, {}).get(kind, "rope_theta")
        # A class may have a key for it with a default of its own.
        if rows[name]["default"] not in (theta, fields.get(name)):
            wrong.append(f"{family}: the default base of `{name}` is {theta}")
    return wrong


def without_effect(family, rows, options):
    """Keys of which the table says that they change nothing do not, as far as another value can be made up."""
    cls = CONFIG_MAPPING[family]
    base = loss(cls, options)
    wrong = []
    for field in dataclasses.fields(cls):
        name, value = field.name, field.default
        if rows.get(field.name, {}).get("done") != "nothing" or name in UNTOUCHED | ORDER:
            continue
        other = {bool: lambda v: not v, int: lambda v: v + 1, float: lambda v: v + 0.25}.get(type(value))
        if other is None and name.endswith("_token_id"):
            other = lambda _: 3
        if other is not None and loss(cls, dict(options, **{name: other(value)})) != base:
            wrong.append(f"{family}: `{name}` = {other(value)} changes the loss")
    return wrong


def loss(cls, options):
    torch.manual_seed(0)
    model = reference.made_of(cls(**copy.deepcopy(options)))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    tokens = torch.arange(24).reshape(2, 12) % 7
    return model(input_ids=tokens, labels=tokens).loss.item()
