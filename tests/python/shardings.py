"""A model of transformers that is sharded by `parallelize_plan` has the logits and gradients of the whole model."""

import copy
import os
import socket

import meshwright
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.parallel import parallelize_module
from transformers import AutoConfig, AutoModelForCausalLM

RANKS, SEQ = 4, 16
SIZES = dict(
    vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=4,
    max_position_embeddings=64, use_cache=False,
)
MIXTRAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
QWEN3_MOE = {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True}
QWEN2_MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40}
# A family, its options, and a configuration of four devices.
CASES = [
    ("llama", {}, "tp=4"),
    ("llama", {}, "tp=4,sp=true"),
    ("llama", {"attention_bias": True, "mlp_bias": True}, "dp=2,tp=2,sp=true"),
    ("llama", {"tie_word_embeddings": True}, "dp=2,tp=2"),
    ("qwen2", {}, "tp=4,sp=true"),
    ("qwen3", {"head_dim": 8}, "tp=4"),
    ("qwen3", {"head_dim": 8}, "dp=2,tp=2,sp=true"),
    ("mixtral", MIXTRAL, "tp=4,ep=4"),
    ("mixtral", MIXTRAL, "dp=4,ep=4"),
    ("mixtral", MIXTRAL, "dp=4,ep=2"),
    ("mixtral", MIXTRAL, "dp=2,tp=2,ep=2,etp=2"),
    ("qwen3_moe", QWEN3_MOE, "dp=2,tp=2,ep=4,sp=true"),
    ("qwen3_moe", QWEN3_MOE, "tp=4,etp=4"),
    ("qwen2_moe", QWEN2_MOE, "tp=4,sp=true"),
    ("qwen2_moe", QWEN2_MOE, "dp=2,tp=2,ep=2,sp=true"),
]


def config_of(family, options):
    return AutoConfig.for_model(family, **SIZES, **options)


def step(model, tokens):
    output = model(input_ids=tokens, labels=tokens)
    output.loss.backward()
    return output.logits.detach()


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def run(rank, port, cases):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    torch.manual_seed(1)
    tokens = torch.randint(0, SIZES["vocab_size"], (2, SEQ))
    for family, options, keys, prediction in cases:
        torch.manual_seed(0)
        reference = AutoModelForCausalLM.from_config(config_of(family, options)).double()
        if "num_experts_per_tok" in options:
            reference.set_experts_implementation("eager")
        model = copy.deepcopy(reference)
        names, sizes = zip(*prediction.mesh())
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
        model = parallelize_module(model, mesh["tp" if "tp" in names else names[0]], prediction.parallelize_plan(mesh=mesh))
        model.tie_weights()
        # Routers of `transformers` compute in f32, and sums over ranks round in another order.
        logits, gradients = (dict(rtol=1e-6, atol=1e-8), dict(rtol=1e-5, atol=1e-7)) if "num_experts_per_tok" in options else (
            dict(rtol=1e-9, atol=1e-11), dict(rtol=1e-8, atol=1e-12)
        )
        torch.testing.assert_close(whole(step(model, tokens)), step(reference, tokens), **logits)
        wanted, sharded = dict(reference.named_parameters()), 0
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(whole(parameter.grad), wanted[name].grad, **gradients)
            sharded += isinstance(parameter, DTensor)
        # What the plan makes of each weight is what the placements say.
        placements = prediction.placements()
        for name, parameter in model.named_parameters():
            own = distribute_tensor(wanted[name].detach(), mesh, [placements[name][axis] for axis in names])
            held = parameter.to_local() if isinstance(parameter, DTensor) else parameter
            assert torch.equal(own.to_local(), held.detach()), name
        if rank == 0:
            print(f"{family} {options or ''} {keys}: logits and gradients are those of the whole model, {sharded} sharded weights", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def refusals():
    """What no style says is refused, with the reason."""
    job = dict(gpus=4, seq=64, global_batch=8)
    for model, keys, reason in [
        ("gpt2", "tp=4", "c_attn"),
        ("mixtral-8x7b", "tp=4,ep=4", "mesh=mesh"),
        ("mixtral-8x7b", "tp=4,ep=2,etp=2", "tp is used in parts"),
        ("gpt-oss-20b", "tp=4", "experts of this family"),
        ("llama3-8b", "tp=16", "key heads"),
    ]:
        try:
            meshwright.estimate(model, **job | ({"gpus": 16} if "16" in keys else {}), parallel=keys, beyond_stack=True).parallelize_plan()
        except meshwright.Error as error:
            assert reason in str(error), str(error)
        else:
            raise AssertionError(f"{model} {keys} has a plan")
    assert meshwright.estimate("llama3-8b", **job, parallel="dp=4").parallelize_plan() == {}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    refusals()
    cases = []
    for family, options, keys in CASES:
        job = dict(gpus=RANKS, seq=SEQ, global_batch=8, precision="f32", beyond_stack=True)
        cases.append((family, options, keys, meshwright.estimate(config_of(family, options), **job, parallel=keys)))
    mp.spawn(run, (free_port(), cases), nprocs=RANKS)
