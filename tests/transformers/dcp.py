"""Loads what `export-weights --shards` has written with torch.distributed.checkpoint, and compares it with whole tensors.

A small model of experts is trained for a step and exported as a folder for transformers, and as shards of few and of many files. One
process loads the shards into tensors; several load them into DTensors of other shardings, and into a model under FSDP. The shards,
joined by torch, are the folder for transformers. Nothing is downloaded.

    python3 tests/transformers/dcp.py
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint import HuggingFaceStorageReader
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from transformers import AutoConfig, AutoModelForCausalLM, logging

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Sizes that few numbers of shards divide, and fewer experts than shards.
CONFIG = dict(
    model_type="mixtral",
    vocab_size=263,
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    num_local_experts=3,
    num_experts_per_tok=2,
)
TRAIN = "train model --data text.txt --seq 16 --global-batch 4 --steps 1 --save-every 1 --eval-every 0 --final-eval-batches 1 --out run"
# Options of exports, and the number of files that each has.
EXPORTS = {"few": ("--shards 3", 3), "many": ("--shards 25 --max-shard 20kB --dtype bf16", None), "one": ("--shards 1", 1)}


def export(binary, folder):
    """Trains and exports; the folder gets `whole`, `whole-bf16` and a folder for each of EXPORTS."""
    os.makedirs(os.path.join(folder, "model"))
    with open(os.path.join(folder, "model", "config.json"), "w") as file:
        json.dump(CONFIG, file)
    with open(os.path.join(folder, "text.txt"), "w") as file:
        file.write("Pack my box with five dozen liquor jugs. " * 400)
    commands = [TRAIN, "export-weights run --out whole", "export-weights run --out whole-bf16 --dtype bf16"]
    commands += [f"export-weights run --out {name} {options}" for name, (options, _) in EXPORTS.items()]
    for command in commands:
        subprocess.run([binary, *command.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def whole_of(folder, name):
    return load_file(os.path.join(folder, "whole-bf16" if name == "many" else "whole", "model.safetensors"))


def check(condition, what):
    if not condition:
        sys.exit(f"dcp: {what}")


def check_alone(folder, name):
    """One process, and the joined files."""
    path, whole = os.path.join(folder, name), whole_of(folder, name)
    files = [entry for entry in os.listdir(path) if entry.endswith(".safetensors")]
    check(EXPORTS[name][1] in (None, len(files)), f"{name} has {len(files)} files")
    state = {key: torch.zeros_like(tensor) for key, tensor in whole.items()}
    dcp.load(state, storage_reader=HuggingFaceStorageReader(path), no_dist=True)
    wrong = [key for key in whole if not torch.equal(state[key], whole[key])]
    check(not wrong, f"{name}, loaded by one process: {wrong}")
    joined = os.path.join(folder, f"{name}-joined")
    os.makedirs(joined)
    shutil.copy(os.path.join(path, "config.json"), joined)
    consolidate_safetensors_files(path, joined, {key: 1 + at % 2 for at, key in enumerate(sorted(whole))})
    model, info = AutoModelForCausalLM.from_pretrained(joined, output_loading_info=True, dtype="auto")
    check(not any(info.values()), f"{name}, joined: {info}")
    other = AutoModelForCausalLM.from_pretrained(os.path.join(folder, "whole-bf16" if name == "many" else "whole"), dtype="auto")
    theirs = dict(other.named_parameters())
    wrong = [key for key, tensor in model.named_parameters() if not torch.equal(tensor, theirs[key])]
    check(not wrong, f"{name}, joined: {wrong}")


def rank(number, count, port, folder):
    """A process of several: DTensors of every sharding, then a model under FSDP."""
    logging.disable_progress_bar()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(number), WORLD_SIZE=str(count))
    dist.init_process_group("gloo", rank=number, world_size=count)
    flat, square = init_device_mesh("cpu", (count,)), init_device_mesh("cpu", (2, count // 2))
    for name in EXPORTS:
        path, whole = os.path.join(folder, name), whole_of(folder, name)
        for mesh, placements in [(flat, [Shard(0)]), (flat, [Shard(1)]), (square, [Shard(1), Shard(0)]), (square, [Replicate(), Shard(0)])]:
            fits = lambda placement, tensor: not isinstance(placement, Shard) or placement.dim < tensor.dim()
            state = {
                key: distribute_tensor(torch.zeros_like(tensor), mesh, [p if fits(p, tensor) else Replicate() for p in placements])
                for key, tensor in whole.items()
            }
            dcp.load(state, storage_reader=HuggingFaceStorageReader(path))
            wrong = [key for key in whole if not torch.equal(state[key].full_tensor(), whole[key])]
            check(not wrong, f"{name} on {count} processes as {placements}: {wrong}")
    fsdp(folder, flat)
    dist.destroy_process_group()


def fsdp(folder, mesh):
    """A dense class with a tied head, whose tensors have the same names in memory as in files, has the logits of the folder for transformers."""
    path = os.path.join(folder, "dense")
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(path)).eval()
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    state = get_model_state_dict(model)
    dcp.load(state, storage_reader=HuggingFaceStorageReader(path))
    other = AutoModelForCausalLM.from_pretrained(os.path.join(folder, "dense-whole"), dtype="auto").eval()
    tokens = torch.arange(32).reshape(2, 16)
    with torch.no_grad():
        check(torch.equal(model(tokens).logits, other(tokens).logits), "logits under FSDP are not those of transformers")


def dense(binary, folder):
    config = {key: value for key, value in CONFIG.items() if "expert" not in key}
    shutil.rmtree(os.path.join(folder, "run"))
    with open(os.path.join(folder, "model", "config.json"), "w") as file:
        json.dump(dict(config, model_type="llama", tie_word_embeddings=True), file)
    for command in [TRAIN, "export-weights run --out dense-whole", "export-weights run --out dense --shards 4"]:
        subprocess.run([binary, *command.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def free_port():
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return own.getsockname()[1]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--binary", default=os.path.join(ROOT, "target", "debug", "meshwright"))
    binary = os.path.abspath(arguments.parse_args().binary)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        export(binary, folder)
        dense(binary, folder)
        for name in EXPORTS:
            check_alone(folder, name)
        for count in (2, 4):
            torch.multiprocessing.spawn(rank, (count, free_port(), folder), nprocs=count)
    print(f"{len(EXPORTS)} exports in shards were loaded by 1, 2 and 4 processes, and joined")


if __name__ == "__main__":
    main()
