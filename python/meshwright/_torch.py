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
# The net of all tokens beside experts, whose outputs are added to theirs.
SHARED_OUTPUTS, SHARED_INPUT = ("mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"), "mlp.shared_expert.down_proj"
# Files have a matrix for each expert; modules have one parameter for the gates and the matrices beside them, and one for the rest.
EXPERT = re.compile(r"(model\.layers\.\d+\.mlp\.experts)\.\d+\.(w1|w2|w3|gate_proj|up_proj|down_proj)\.weight")


def refused(why, fix):
    return Error((None, why, f"{why}\n  help: {fix}"))


def placements(sharding):
    from torch.distributed.tensor import Replicate, Shard

    axes = [axis["name"] for axis in sharding["mesh"] if axis["name"] != "pp"]
    found = {
        name: {axis: Shard(tensor["shards"][axis]) if axis in tensor["shards"] else Replicate() for axis in axes}
        for name, tensor in tensors(sharding)
        if "unstated" not in tensor and not EXPERT.fullmatch(name)
    }
    modules = experts(sharding)
    if modules:
        from . import _experts

        for module, own in modules.items():
            if is_in_order(own, axes):
                found |= {f"{module}.{name}": _experts.placements(own, name, axes) for name in _experts.WIDTHS}
    return found


def is_in_order(experts, axes):
    """Whether experts are divided first by the outermost axis, as PyTorch shards a dim."""
    return experts["owners"] == [axis for axis in axes if axis in experts["owners"]]


def tensors(sharding):
    """The tensors by the names of modules. Files of Mixtral have older names."""
    for name, tensor in sharding["tensors"].items():
        yield name.replace(".block_sparse_moe.", ".mlp."), tensor


def experts(sharding):
    """By module of experts the axes whose ranks have different experts, and those whose ranks have parts of their width."""
    found = {}
    for name, tensor in tensors(sharding):
        expert = EXPERT.fullmatch(name)
        if expert:
            own = {"owners": tensor.get("owners", []), "width": sorted(tensor["shards"])}
            if found.setdefault(expert[1], own) != own:
                raise refused(f"{name} is sharded in another way than others of its layer", "distribute the weights of experts by hand")
    return found


def expert_styles(sharding, mesh):
    """The styles of modules of experts that ranks share."""
    shared = {name: own for name, own in experts(sharding).items() if own["owners"] or own["width"]}
    if not shared:
        return {}
    if mesh is None:
        raise refused("experts are on ranks of several axes", "give the mesh of all axes: parallelize_plan(mesh=mesh)")
    names = [axis["name"] for axis in sharding["mesh"]]
    if list(mesh.mesh_dim_names or ()) != names:
        raise refused(f"the mesh has the axes {mesh.mesh_dim_names}, and the plan {tuple(names)}", "make it of plan.mesh(), as the documentation shows")
    if not all(is_in_order(own, names) for own in shared.values()):
        raise refused("experts are divided in another order than that of the mesh", "choose an ep within one axis")
    from . import _experts

    alike = [name for name in names if name.startswith("tp")]
    return {name: _experts.ExpertParallel(mesh, own, alike) for name, own in shared.items()}


def parallelize_plan(sharding, loss_parallel, mesh):
    sizes = {axis["name"]: axis["size"] for axis in sharding["mesh"]}
    if any(name.startswith("tp") and name != "tp" for name in sizes):
        raise refused("tp is used in parts: its ranks share key heads", "choose a tp that divides the number of key heads, and the ranks of experts")
    plan = tensor_styles(sharding, loss_parallel) if "tp" in sizes else {}
    return plan | expert_styles(sharding, mesh)


def tensor_styles(sharding, loss_parallel):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor import parallel

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
        elif kind in SHARED_OUTPUTS and dim == 0:
            plan[name] = parallel.ColwiseParallel()
        elif kind == SHARED_INPUT and dim == 1:
            plan[name] = parallel.RowwiseParallel()
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
        sparse = {name.rpartition(".mlp.")[0] for name in experts(sharding)}
        for layer in sorted({name.partition(".self_attn.")[0] for name in plan if ".self_attn." in name}):
            whole = {"hidden_states": Replicate()}
            plan[f"{layer}.self_attn"] = parallel.PrepareModuleInput(
                input_kwarg_layouts={"hidden_states": Shard(1)}, desired_input_kwarg_layouts=whole, use_local_output=True
            )
            inputs = dict(input_layouts=Shard(1), desired_input_layouts=Replicate())
            if layer in sparse:
                # A router reads all tokens of a sequence, and the sum of its experts goes back to shards.
                plan[f"{layer}.mlp"] = parallel.PrepareModuleInputOutput(
                    **inputs, use_local_input=True, output_layouts=Replicate(), desired_output_layouts=Shard(1), use_local_output=False
                )
            else:
                plan[f"{layer}.mlp"] = parallel.PrepareModuleInput(**inputs, use_local_output=True)
    return plan


def modules(sharding):
    """The dim of its weight that tp shards, by module; None for a weight that all ranks have."""
    found = {}
    for name, tensor in tensors(sharding):
        module, _, leaf = name.rpartition(".")
        if EXPERT.fullmatch(name):
            continue
        if ".experts." in name:
            raise refused(f"{name}: experts of this family have no style", "use placements() and distribute its weights by hand")
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
