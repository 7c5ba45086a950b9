"""Saves models and their configurations as their classes do."""

import json
import os

from safetensors.torch import load_file, save_file

import further


def config_of(config, has_further):
    """The file of a configuration. The class counts layers that predict further tokens, and computes none."""
    file = json.loads(config.to_json_string())
    for key in ("num_nextn_predict_layers", "num_mtp_layers"):
        if key in file and not has_further:
            file[key] = 0
    return file


def has_experts(file):
    """True if a configuration says how many experts a token takes."""
    return any(key in file for key in ("num_experts_per_tok", "moe_topk", "moe_k", "ffn_config"))


def save(model, folder, shard):
    """Saves a model as its class does, and its further layers as published files have them."""
    extra = {}
    if hasattr(model, "further"):
        layers = model.config.num_hidden_layers
        own = [*model.named_parameters(), *model.named_buffers()]
        extra = {further.name(key, layers): tensor.contiguous() for key, tensor in own if key.startswith("further.layers.")}
        del model.further
        shard = "1GB"
    model.save_pretrained(folder, max_shard_size=shard)
    if extra:
        file = os.path.join(folder, "model.safetensors")
        save_file({**load_file(file), **extra}, file)
