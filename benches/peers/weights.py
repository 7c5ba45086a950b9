"""Parameters of a checkpoint of `meshwright train`, as the matrices that the peers compute with."""

import json
import os

import numpy as np


def read(checkpoint):
    """All parameters of a checkpoint by name, without the states of the optimizer."""
    with open(os.path.join(checkpoint, "manifest.json")) as file:
        manifest = json.load(file)
    files = [tensors(os.path.join(checkpoint, file["name"])) for file in manifest["files"]]
    out = {}
    for name, parameter in manifest["parameters"].items():
        sizes = parameter["sizes"]
        out[name] = np.empty(sizes, np.float32)
        for shard in parameter["shards"]:
            ranges = [(first, first + size) for first, size in zip(shard["offset"], shard["shape"])]
            suffix = "[" + ",".join(f"{first}:{end}" for first, end in ranges) + "]"
            key = name if shard["shape"] == sizes else name + suffix
            out[name][tuple(slice(*piece) for piece in ranges)] = files[shard["file"]](key)
    return out


def tensors(path):
    """A function from the key of a tensor in a safetensors file to its elements."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))

    def tensor(key):
        entry = header[key]
        if entry["dtype"] != "F32":
            raise ValueError(f"`{key}` is {entry['dtype']}, but initial weights are read in F32")
        start, shape = 8 + length + entry["data_offsets"][0], tuple(entry["shape"])
        return np.memmap(path, np.float32, "r", offset=start, shape=shape)

    return tensor


def of_peers(checkpoint):
    """The parameters that peers have: matrices from inputs to outputs; queries, keys and values in one product."""
    stored = read(checkpoint)
    hidden = stored["final_norm"].shape[0]
    out = {}
    for name, tensor in stored.items():
        layer, _, field = name.rpartition(".")
        if field in ("wq", "bq"):
            parts = [stored[f"{layer}.{field[0]}{part}"] for part in "qkv"]
            rows = (hidden,) if field == "wq" else ()
            parts = [part.reshape(*rows, -1) for part in parts]
            out[f"{layer}.{field[0]}qkv"] = np.concatenate(parts, axis=-1)
        elif field == "wo":
            out[name] = tensor.reshape(-1, hidden)
        elif field not in ("wk", "wv", "bk", "bv"):
            out[name] = tensor
    return out
