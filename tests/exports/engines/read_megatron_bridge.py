"""Megatron-Bridge's own reading of a file: its configuration container, its checks, and those of Megatron Core behind them.

Runs in the environment of megatron-bridge. A line of standard input is a job, `{"text", "world", "capability"}`; the answer is a line,
`{"why", "read"}`. Megatron-Bridge imports Transformer Engine and a reader of other data in any case: empty classes stand in for them.
"""

import dataclasses
import enum
import importlib.abc
import importlib.machinery
import json
import os
import sys
import tempfile
import types
import typing

from answering import serve
import read_megatron as core
import rows
import torch


class Empty(type):
    """A class that has any attribute, each of which is such a class."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Empty(name, (), {"__init__": lambda self, *_, **__: None})


class Missing(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        return getattr(Empty("missing", (), {}), name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        is_missing = name.split(".")[0] in ("transformer_engine", "transformer_engine_torch") or name.startswith("megatron.energon")
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_missing else None

    def create_module(self, spec):
        return Missing(spec.name)

    def exec_module(self, module):
        pass


# Megatron Core is imported by now, by its path without Transformer Engine.
sys.meta_path.insert(0, Finder())
from megatron.bridge.models.gpt_provider import GPTModelProvider
from megatron.bridge.models.mla_provider import MLAModelProvider
from megatron.bridge.training.config import ConfigContainer, runtime_config_update

MODELS = [GPTModelProvider, MLAModelProvider]

core.stand_in()


def accepted(job):
    """What Megatron-Bridge's configuration of a job states, by the names of a plan.

    Raises what it raises."""
    core.CAPABILITY = tuple(job["capability"])
    for variable in [variable for variable in os.environ if variable.startswith(("CUDA_DEVICE_", "NCCL_", "NVTE_", "PYTORCH_", "TORCH_NCCL"))]:
        del os.environ[variable]
    os.environ.update(job["environment"], WORLD_SIZE=str(job["world"]), RANK="0")
    if torch.distributed.is_initialized():
        core.parallel_state.destroy_model_parallel()
        torch.distributed.destroy_process_group()
    scope = {"__name__": "planned"}
    exec(job["text"], scope)
    cfg = scope["planned"]()
    with tempfile.TemporaryDirectory() as folder:
        cfg.to_yaml(f"{folder}/run_config.yaml")
        with open(f"{folder}/run_config.yaml") as file:
            written = file.read()
    runtime_config_update(cfg)
    model, ddp, train = cfg.model, cfg.ddp, cfg.train
    core.unset_num_microbatches_calculator()
    core.init_num_microbatches_calculator(0, None, train.global_batch_size, train.micro_batch_size, cfg.data_parallel_size, False)
    args = types.SimpleNamespace(
        world_size=job["world"], data_parallel_size=cfg.data_parallel_size, use_megatron_fsdp=ddp.use_megatron_fsdp, params_dtype=model.params_dtype,
        data_parallel_sharding_strategy=ddp.data_parallel_sharding_strategy, use_distributed_optimizer=ddp.use_distributed_optimizer,
        micro_batch_size=train.micro_batch_size, global_batch_size=train.global_batch_size, seq_length=model.seq_length, vocab_size=model.vocab_size,
        tensor_model_parallel_size=model.tensor_model_parallel_size, pipeline_model_parallel_size=model.pipeline_model_parallel_size,
        virtual_pipeline_model_parallel_size=model.virtual_pipeline_model_parallel_size, context_parallel_size=model.context_parallel_size,
        expert_model_parallel_size=model.expert_model_parallel_size, expert_tensor_parallel_size=model.expert_tensor_parallel_size,
        num_distributed_optimizer_instances=ddp.num_distributed_optimizer_instances, use_tp_pp_dp_mapping=cfg.dist.use_tp_pp_dp_mapping,
        untie_embeddings_and_output_weights=not model.share_embeddings_and_output_weights, cpu_offloading_num_layers=model.cpu_offloading_num_layers,
        ckpt_format=cfg.checkpoint.ckpt_format,
    )
    core.groups(args)
    core.scheduled(args, model)
    return {"yaml": written, **core.read(args, model, ddp, cfg.optimizer), "connections": os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS")}


def flags():
    """Rows of the fields of the container; those of a model are of GPTs with and without latent attention."""
    hints = typing.get_type_hints(ConfigContainer)
    for field in dataclasses.fields(ConfigContainer):
        kinds = MODELS if field.name == "model" else [kind for kind in rows.parts(hints[field.name]) if dataclasses.is_dataclass(kind)]
        # A section without fields, or one that a name states, or a class of one's own.
        if not any(dataclasses.fields(kind) for kind in kinds) or field.name in ("mixed_precision", "peft"):
            yield rows.row(field.name, field.name, hints[field.name], "")
        for kind in kinds:
            for inner in dataclasses.fields(kind):
                default = "" if inner.default is dataclasses.MISSING else inner.default
                yield rows.row(f"{field.name}.{inner.name}", field.name, types.NoneType, shown(default))


def shown(default):
    """A default as a file has it: enums by their names, and functions or element types by their paths."""
    if isinstance(default, enum.Enum):
        return default.name
    if callable(default):
        return f"{default.__module__}.{default.__qualname__}"
    return str(default)


if sys.argv[1:] == ["--flags"]:
    print(json.dumps(rows.unique(flags())), file=core.ANSWERS, flush=True)
else:
    serve(accepted, core.ANSWERS)
