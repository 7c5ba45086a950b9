"""nanotron's own reading of a file: its configuration classes and their checks.

Runs in the environment of nanotron. A line of standard input is a job, `{"text"}`; the answer is a line, `{"why", "read"}`. Sections that an
export leaves to the user have fixed values here.
"""

import json
import os
import sys
import types

ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

# `nanotron.config` and `nanotron.logging` of 0.4 import each other: the first import of one needs the names of the other.
for module in ("nanotron.config", "nanotron.config.config"):
    sys.modules[module] = types.ModuleType(module)
    for name in ("LoggingArgs", "ParallelismArgs", "Config"):
        setattr(sys.modules[module], name, type(name, (), {}))
import nanotron.logging  # noqa: F401

for module in [module for module in sys.modules if module.startswith("nanotron.config")]:
    del sys.modules[module]

from answering import serve
import rows
import yaml
from nanotron.config.utils_config import cast_str_to_pipeline_engine, cast_str_to_torch_dtype
from nanotron.config import Config, OptimizerArgs, ParallelismArgs, TokensArgs

OPTIMIZER = {
    "adam_eps": 1e-8, "adam_beta1": 0.9, "adam_beta2": 0.95, "torch_adam_is_fused": True, "weight_decay": 0.1, "clip_grad": 1.0,
    "learning_rate_scheduler": {"learning_rate": 1e-4, "lr_warmup_steps": 1, "lr_warmup_style": "linear", "lr_decay_style": "cosine", "min_decay_lr": 1e-5, "lr_decay_steps": 2},
}


def made(kind, values):
    """A section by nanotron's own reader of dictionaries, which refuses unknown keys."""
    import dacite
    from nanotron.parallel.pipeline_parallel.engine import PipelineEngine
    from nanotron.parallel.tensor_parallel.nn import TensorParallelLinearMode
    import torch

    hooks = {torch.dtype: cast_str_to_torch_dtype, PipelineEngine: cast_str_to_pipeline_engine, TensorParallelLinearMode: lambda mode: TensorParallelLinearMode[mode.upper()]}
    return dacite.from_dict(kind, values, config=dacite.Config(cast=[], type_hooks=hooks, strict=True))


def accepted(job):
    """What nanotron's configuration of a job states.

    Raises what nanotron raises."""
    stated = yaml.safe_load(job["text"])
    if unknown := [name for name in stated if name not in ("parallelism", "tokens", "optimizer", "model")]:
        raise ValueError(f"nanotron has no section {unknown}")
    parallelism = made(ParallelismArgs, stated["parallelism"])
    tokens = made(TokensArgs, {"train_steps": 2, "val_check_interval": -1, **stated["tokens"]})
    optimizer = made(OptimizerArgs, {**OPTIMIZER, **stated["optimizer"]})
    return {
        "dtype": str(cast_str_to_torch_dtype(stated["model"]["dtype"])).removeprefix("torch."), "dp": parallelism.dp, "pp": parallelism.pp, "tp": parallelism.tp, "ep": parallelism.expert_parallel_size, "sp": parallelism.tp_mode.name == "REDUCE_SCATTER",
        "engine": type(parallelism.pp_engine).__name__, "seq": tokens.sequence_length, "mbs": tokens.micro_batch_size, "microbatches": tokens.batch_accumulation_per_replica,
        "zero": optimizer.zero_stage, "wide": optimizer.accumulate_grad_in_fp32, "tp_overlap": parallelism.tp_linear_async_communication,
    }


def main():
    if sys.argv[1:] == ["--flags"]:
        print(json.dumps(rows.unique(rows.of_dataclass(Config))), file=ANSWERS, flush=True)
        return
    serve(accepted, ANSWERS)


main()
