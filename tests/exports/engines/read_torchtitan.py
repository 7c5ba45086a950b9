"""torchtitan's own reading of a file: its configuration classes, their checks, and the mesh of its devices.

Runs in the environment of torchtitan. A line of standard input is a job, `{"text", "world", "model"}`; the answer is a line, `{"why", "read"}`.
"""

import os
import warnings

ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
warnings.filterwarnings("ignore")

from answering import serve
import torch
from torch.testing._internal.distributed.fake_pg import FakeStore
from torchtitan.distributed.parallel_dims import ParallelDims
from torchtitan.models.deepseek_v3 import config_registry as deepseek
from torchtitan.models.gpt_oss import config_registry as gpt_oss
from torchtitan.models.llama3 import config_registry as llama3
from torchtitan.models.qwen3 import config_registry as qwen3
from torchtitan.trainer import Trainer

# Entries of torchtitan's registry by the names of models, but those that ask for a device of 8 bits.
REGISTRY = {
    "llama3-8b": llama3.llama3_8b, "llama3-70b": llama3.llama3_70b, "qwen3-32b": qwen3.qwen3_32b,
    "qwen3-30b-a3b": qwen3.qwen3_30b_a3b, "deepseek-v3": deepseek.deepseek_v3_671b, "gpt-oss-20b": gpt_oss.gpt_oss_20b, "gpt-oss-120b": gpt_oss.gpt_oss_120b,
}


def accepted(job):
    """What torchtitan's configuration of a job states.

    Raises what torchtitan raises."""
    scope = {}
    exec(job["text"], scope)
    base = REGISTRY[job["model"]]() if job["model"] in REGISTRY else Trainer.Config()
    config = scope["planned"](base)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    torch.distributed.init_process_group("fake", rank=0, world_size=job["world"], store=FakeStore())
    dims = ParallelDims.from_config(config.parallelism, job["world"])
    dims.build_mesh()
    parallelism, training = config.parallelism, config.training
    divisor = (dims.tp if parallelism.enable_sequence_parallel else 1) * (2 * dims.cp if dims.cp > 1 else 1)
    if training.seq_len % divisor:
        raise ValueError(f"Training sequence length ({training.seq_len}) must be divisible by {divisor}")
    if config.model_spec is not None:
        config.model_spec.model.update_from_config(config=config)
    local, batch = training.local_batch_size, dims.dp_replicate * dims.dp_shard
    if training.global_batch_size % (local * batch):
        raise ValueError(f"global batch size must be multiple of local batch size times data-parallel degree ({training.global_batch_size} % ({local} * {batch}) != 0)")
    policy = config.activation_checkpoint
    return {
        "dp": batch, "shard": dims.dp_shard, "tp": dims.tp, "pp": dims.pp, "cp": dims.cp, "ep": dims.ep, "sp": parallelism.enable_sequence_parallel,
        "reshard": parallelism.fsdp_reshard_after_forward, "schedule": parallelism.pipeline_parallel_schedule if dims.pp > 1 else None,
        "parts": [sum(name.startswith("layers.") for name in part) for part in parallelism.module_fqns_per_model_part or []],
        "mbs": parallelism.pipeline_parallel_microbatch_size if dims.pp > 1 else local, "seq": training.seq_len, "global_batch": training.global_batch_size,
        "compiled": config.compile.enable, "async_tp": config.compile.enable_async_tensor_parallel, "graphs": not training.disable_cuda_graphs,
        "recompute": type(policy).__qualname__.split(".")[0] if policy is not None else None, "offload": training.enable_cpu_offload,
        "parameters": training.mixed_precision_param,
    }


serve(accepted, ANSWERS)
