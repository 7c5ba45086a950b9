"""Megatron Core's own reading of a job: its parser, its checks of arguments, its configuration classes, its process groups and its schedule.

Runs in the environment of megatron-core. A line of standard input is a job, `{"argv", "environment", "world", "capability"}`; the answer is a
line, `{"why", "read"}`: why Megatron refuses it, or what its configuration then states.

Nothing of Megatron is replaced. A stand-in answers what only a device or Transformer Engine can: the capability, the version, and whether
fused kernels exist.
"""

import argparse
import contextlib
import io
import json
import os
import sys
import types

import warnings

warnings.filterwarnings("ignore")

import torch
import torch.distributed
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch._subclasses.fake_tensor import FakeTensorMode

# What the engine prints goes elsewhere than the answers.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
CAPABILITY = (9, 0)
# Names of devices by the first number of their capability.
NAMES = {8: "NVIDIA A100", 9: "NVIDIA H100", 10: "NVIDIA B200"}
torch.cuda.get_device_capability = lambda *_: CAPABILITY
torch.cuda.Stream = type("Stream", (), {"__new__": lambda *_, **__: None})
torch.cuda.current_stream = lambda *_: None
torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(major=CAPABILITY[0], minor=CAPABILITY[1], name=NAMES[CAPABILITY[0]], multi_processor_count=132)

import megatron.training.arguments as arguments
from megatron.core import parallel_state, utils
from megatron.core.models.common.embeddings import rope_utils
from megatron.core.num_microbatches_calculator import get_num_microbatches, init_num_microbatches_calculator, unset_num_microbatches_calculator
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.transformer_block import get_num_layers_to_build
from megatron.training.argument_utils import core_transformer_config_from_args
from megatron.training.training import get_megatron_ddp_config, get_megatron_optimizer_config
from packaging.version import Version


class Reached(Exception):
    """The schedule's checks passed, and it asked for the first forward."""


def stand_in():
    """Answers for Transformer Engine: its version, its optimizer's arguments, and that its kernels exist."""
    utils._te_version = Version("2.14.0")
    kernels = [(rope_utils, "fused_apply_rotary_pos_emb"), (rope_utils, "fused_apply_rotary_pos_emb_thd")]
    names = ["compute_score_for_moe_aux_loss", "moe_aux_loss", "permute", "permute_with_probs", "permute_and_pad_with_probs",
             "sort_chunks_by_index", "sort_chunks_by_index_with_probs", "topk_with_score_function", "unpermute"]
    for module, name in kernels + [(moe_utils, f"fused_{name}") for name in names]:
        setattr(module, name, object())
    optimizers = types.ModuleType("transformer_engine.pytorch.optimizers")

    class FusedAdam:
        def __init__(self, master_weight_dtype=None, exp_avg_dtype=None, exp_avg_sq_dtype=None, use_decoupled_grad=None, store_param_remainders=None):
            pass

    optimizers.FusedAdam = FusedAdam
    for name in ("transformer_engine", "transformer_engine.pytorch"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["transformer_engine.pytorch.optimizers"] = optimizers


def groups(args):
    """Process groups of the first rank, as `initialize_megatron` makes them."""
    if torch.distributed.is_initialized():
        parallel_state.destroy_model_parallel()
        torch.distributed.destroy_process_group()
    torch.distributed.init_process_group("fake", rank=0, world_size=args.world_size, store=FakeStore())
    parallel_state.initialize_model_parallel(
        args.tensor_model_parallel_size,
        args.pipeline_model_parallel_size,
        args.virtual_pipeline_model_parallel_size,
        context_parallel_size=args.context_parallel_size,
        expert_model_parallel_size=args.expert_model_parallel_size,
        expert_tensor_parallel_size=args.expert_tensor_parallel_size,
        num_distributed_optimizer_instances=args.num_distributed_optimizer_instances,
        order="tp-cp-ep-pp-dp" if args.use_tp_pp_dp_mapping else "tp-cp-ep-dp-pp",
        create_gloo_process_groups=False,
    )


def scheduled(args, config):
    """Runs the schedule until it asks for the first forward."""
    chunks = args.virtual_pipeline_model_parallel_size or 1

    class Chunk(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.config, self.model_type, self.vp_stage = config, None, 0

        def set_input_tensor(self, _):
            pass

        def build_schedule_plan(self, *_, **__):
            raise Reached

    def first_forward(*_, **__):
        raise Reached

    from megatron.core.enums import ModelType

    model = [Chunk() for _ in range(chunks)]
    for chunk in model:
        chunk.model_type = ModelType.encoder_or_decoder
    schedule = get_forward_backward_func()
    try:
        with FakeTensorMode():
            schedule(forward_step_func=first_forward, data_iterator=[iter([])] * chunks if chunks > 1 else iter([]), model=model if chunks > 1 else model[:1],
                     num_microbatches=get_num_microbatches(), seq_length=args.seq_length, micro_batch_size=args.micro_batch_size,
                     decoder_seq_length=args.seq_length, forward_only=False)
    except Reached:
        return


def layers(args, config):
    """Layers of each stage, by virtual stage and pipeline rank."""
    ranks, chunks = range(args.pipeline_model_parallel_size), args.virtual_pipeline_model_parallel_size
    if layout := config.pipeline_model_parallel_layout:
        return [[sum(block.name == "decoder" for block in layout.layout[rank][chunk]) for rank in ranks] for chunk in range(chunks or 1)]
    return [[get_num_layers_to_build(config, vp_stage=chunk if chunks else None, pp_rank=rank) for rank in ranks] for chunk in range(chunks or 1)]


def name(dtype):
    return None if dtype is None else str(dtype).removeprefix("torch.")


def read(args, config, ddp_config, optimizer):
    """What the configuration states, by the names of a plan."""
    fsdp = args.use_megatron_fsdp
    zero = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}[args.data_parallel_sharding_strategy] if fsdp else int(args.use_distributed_optimizer)
    gradient = (ddp_config.megatron_fsdp_main_grads_dtype or args.params_dtype) if fsdp else (torch.float32 if ddp_config.grad_reduce_in_fp32 else args.params_dtype)
    return {
        "world": args.world_size, "dp": args.data_parallel_size, "tp": config.tensor_model_parallel_size, "pp": config.pipeline_model_parallel_size,
        "cp": config.context_parallel_size, "ep": config.expert_model_parallel_size, "etp": config.expert_tensor_parallel_size,
        "sp": config.sequence_parallel, "vp": args.virtual_pipeline_model_parallel_size or 1, "group": config.microbatch_group_size_per_vp_stage,
        "mbs": args.micro_batch_size, "microbatches": get_num_microbatches(), "seq": args.seq_length, "global_batch": args.global_batch_size,
        "zero": zero, "gradient": name(gradient), "instances": args.num_distributed_optimizer_instances,
        "dispatcher": config.moe_token_dispatcher_type if config.num_moe_experts else None,
        "backend": config.moe_flex_dispatcher_backend if config.num_moe_experts and config.moe_token_dispatcher_type == "flex" else None,
        "grouped": bool(config.moe_grouped_gemm) if config.num_moe_experts else None,
        "recompute": config.recompute_granularity, "modules": sorted(config.recompute_modules or []) if config.recompute_granularity == "selective" else [],
        "recomputed_layers": config.recompute_num_layers if config.recompute_granularity == "full" else None, "method": config.recompute_method,
        "layers": layers(args, config), "dropout": [config.hidden_dropout, config.attention_dropout],
        "loss": bool(config.cross_entropy_loss_fusion) and config.cross_entropy_fusion_impl, "permute": bool(config.moe_permute_fusion),
        "router": bool(config.moe_router_fusion), "attention": config.attention_backend.name, "fp8": config.fp8 and config.fp8_recipe and str(getattr(config.fp8_recipe, "value", config.fp8_recipe)),
        "overlap_grad_reduce": ddp_config.overlap_grad_reduce, "overlap_param_gather": ddp_config.overlap_param_gather, "tp_overlap": config.tp_comm_overlap,
        "ep_overlap": config.overlap_moe_expert_parallel_comm, "p2p_overlap": config.overlap_p2p_comm, "graphs": str(getattr(config, "cuda_graph_impl", "none")),
        "moments": [name(optimizer.exp_avg_dtype), name(optimizer.exp_avg_sq_dtype)], "masters": name(optimizer.main_params_dtype), "optimizer": optimizer.optimizer,
        "precision_aware": optimizer.use_precision_aware_optimizer,
        "bucket": ddp_config.bucket_size, "capacity": config.moe_expert_capacity_factor, "pads": config.moe_pad_expert_input_to_capacity,
        "num_layers": config.num_layers, "hidden": config.hidden_size, "feed_forward": config.ffn_hidden_size, "heads": config.num_attention_heads, "kv_heads": config.num_query_groups,
        "head": config.kv_channels, "vocabulary": args.vocab_size, "experts": config.num_moe_experts, "further": config.mtp_num_layers or 0, "tied": not args.untie_embeddings_and_output_weights,
        "offloaded": args.cpu_offloading_num_layers, "host_optimizer": optimizer.optimizer_cpu_offload, "checkpoint": args.ckpt_format,
        "first_ranks": {kind: ranks(kind) for kind in ("tp", "cp", "dp", "pp")},
    }


def ranks(kind):
    group = {"tp": parallel_state.get_tensor_model_parallel_group, "cp": parallel_state.get_context_parallel_group, "dp": parallel_state.get_data_parallel_group,
             "pp": parallel_state.get_pipeline_model_parallel_group}[kind]()
    return torch.distributed.get_process_group_ranks(group)


def accepted(job):
    """What Megatron's configuration of a job states.

    Raises what Megatron raises."""
    global CAPABILITY
    CAPABILITY = tuple(job["capability"])
    for variable in [variable for variable in os.environ if variable.startswith(("CUDA_DEVICE_", "NCCL_", "NVLINK_", "USE_MNNVL", "NUM_OF_", "NVTE_", "PYTORCH_", "TORCH_NCCL"))]:
        del os.environ[variable]
    os.environ.update(job["environment"], WORLD_SIZE=str(job["world"]), RANK="0")
    sys.argv = ["pretrain_gpt.py", *job["argv"]]
    args = arguments.parse_args()
    arguments.validate_args(args)
    unset_num_microbatches_calculator()
    init_num_microbatches_calculator(0, None, args.global_batch_size, args.micro_batch_size, args.data_parallel_size, False)
    config = core_transformer_config_from_args(args)
    ddp_config, (optimizer, _) = get_megatron_ddp_config(args), get_megatron_optimizer_config(args)
    groups(args)
    scheduled(args, config)
    return read(args, config, ddp_config, optimizer)


def flags():
    """The rows of Megatron's parser."""
    parser = arguments.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
    groups = {id(action): group.title for group in parser._action_groups for action in group._group_actions}
    return [
        {"flags": [flag.removeprefix("--").replace("_", "-") for flag in action.option_strings if flag.startswith("--")], "group": groups[id(action)],
         "default": str(action.default), "choices": [getattr(choice, "name", str(choice)) for choice in action.choices or []],
         "takes": "nothing" if action.nargs == 0 else "many" if action.nargs in ("+", "*") else "one"}
        for action in parser._actions
    ]


def main():
    if sys.argv[1:] == ["--flags"]:
        print(json.dumps(flags()), file=ANSWERS, flush=True)
        return
    stand_in()
    for line in sys.stdin:
        answer = {"why": None, "read": None}
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                answer["read"] = accepted(json.loads(line))
            except SystemExit:
                answer["why"] = said.getvalue().strip().splitlines()[-1]
            except Exception as why:
                frame = why.__traceback__
                while frame.tb_next:
                    frame = frame.tb_next
                answer["why"] = f"{type(why).__name__}: {why} ({os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno})"
        print(json.dumps(answer), file=ANSWERS, flush=True)


if __name__ == "__main__":
    main()
