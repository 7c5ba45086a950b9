"""Shardings and schedules as objects of PyTorch, which is imported on use."""

import re

from ._call import Error

# Modules of a layer by what their weights do: the outputs or the inputs of a product are sharded.
OUTPUTS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
INPUTS = ("self_attn.o_proj", "mlp.down_proj")
# Norms over the heads of a rank, and those over the residual stream.
HEAD_NORMS = ("self_attn.q_norm", "self_attn.k_norm")
NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
EMBEDDING, NORM, HEAD = "model.embed_tokens", "model.norm", "lm_head"


def refused(why, fix):
    return Error((None, why, f"{why}\n  help: {fix}"))


def placements(sharding):
    from torch.distributed.tensor import Replicate, Shard

    axes = [axis["name"] for axis in sharding["mesh"] if axis["name"] != "pp"]
    return {
        name: {axis: Shard(tensor["shards"][axis]) if axis in tensor["shards"] else Replicate() for axis in axes}
        for name, tensor in sharding["tensors"].items()
        if "unstated" not in tensor
    }


def parallelize_plan(sharding, loss_parallel):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor import parallel

    sizes = {axis["name"]: axis["size"] for axis in sharding["mesh"]}
    if "tp" not in sizes:
        if any(name.startswith("tp") for name in sizes):
            raise refused("tp is used in parts: its ranks share key heads", "choose a tp that divides the number of key heads")
        return {}
    split = sharding["sequence_parallel"]
    # Without local outputs a shape is that of the whole tensor, which masks and positions are made from.
    stream = Shard(1) if split else Replicate()
    plan = {}
    for name, dim in modules(sharding).items():
        kind = re.sub(r"^model\.layers\.\d+\.", "", name)
        if kind in OUTPUTS and dim == 0:
            plan[name] = parallel.ColwiseParallel()
        elif kind in INPUTS and dim == 1:
            plan[name] = parallel.RowwiseParallel(output_layouts=stream, use_local_output=not split)
        elif name == EMBEDDING and dim == 0:
            plan[name] = parallel.RowwiseParallel(input_layouts=Replicate(), output_layouts=stream, use_local_output=not split)
        elif name == EMBEDDING and dim == 1:
            plan[name] = parallel.ColwiseParallel(output_layouts=stream, use_local_output=not split)
        elif name == HEAD and dim == 0:
            layout = Shard(-1) if loss_parallel else Replicate()
            plan[name] = parallel.ColwiseParallel(input_layouts=stream, output_layouts=layout, use_local_output=not loss_parallel)
        elif kind in HEAD_NORMS and dim is None:
            # Each rank has the norm's rows of its own heads; the gradient of the gain is a sum over ranks.
            plan[name] = parallel.SequenceParallel(sequence_dim=2, use_local_output=True)
        elif (kind in NORMS or name == NORM) and dim is None:
            if split:
                plan[name] = parallel.SequenceParallel()
        elif dim is not None or kind in OUTPUTS + INPUTS:
            raise refused(f"{name} has no style for its shards", "use placements() and distribute its weights by hand")
    if split:
        for layer in sorted({name.rsplit(".", 2)[0] for name in plan if name.endswith("_proj")}):
            whole = {"hidden_states": Replicate()}
            plan[f"{layer}.self_attn"] = parallel.PrepareModuleInput(
                input_kwarg_layouts={"hidden_states": Shard(1)}, desired_input_kwarg_layouts=whole, use_local_output=True
            )
            plan[f"{layer}.mlp"] = parallel.PrepareModuleInput(
                input_layouts=Shard(1), desired_input_layouts=Replicate(), use_local_output=True
            )
    return plan


def modules(sharding):
    """The dim of its weight that tp shards, by module; None for a weight that all ranks have."""
    found = {}
    for name, tensor in sharding["tensors"].items():
        module, _, leaf = name.rpartition(".")
        if ".experts." in name:
            raise refused(f"{name}: experts have no style", "use placements() and distribute its weights by hand")
        if "unstated" in tensor:
            raise refused(f"{name}: {tensor['unstated']}", "use placements() and distribute its weights by hand")
        if leaf == "weight":
            found[module] = tensor["shards"].get("tp")
        elif leaf != "bias":
            raise refused(f"{name} is neither a weight nor a bias of a module", "use placements() and distribute it by hand")
    return found


def owners(order):
    ranks = {}
    for rank, row in enumerate(order):
        for cell in row:
            for stage in re.findall(r"(\d+)[FBIW]\d", cell):
                ranks.setdefault(int(stage), rank)
    return [ranks[stage] for stage in range(len(ranks))]


def pipeline_order(csv):
    from torch.distributed.pipelining.schedules import _Action

    return {rank: [_Action.from_str(cell) for cell in line.split(",")] for rank, line in enumerate(csv.splitlines())}


def runtime(schedule, stages, loss_fn, options):
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    made = _PipelineScheduleRuntime(stages, schedule["microbatches"], loss_fn=loss_fn, **options)
    made.pipeline_order = pipeline_order(schedule.csv())
    made._prepare_schedule_with_comms(made.pipeline_order)
    return made
