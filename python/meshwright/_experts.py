"""Experts of `transformers` on several ranks. PyTorch is imported with this module."""

import functools
import math

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle
from torch.distributed.tensor.placement_types import _StridedShard

# The dim of a module's parameter that is divided with the width of experts. `gate_up_proj` has the gates, then the others.
WIDTHS = {"gate_up_proj": _StridedShard(1, split_factor=2), "down_proj": Shard(2)}


def placements(experts, name, axes):
    """The placements of a parameter of a module of experts, by axis."""
    chosen = {axis: Shard(0) for axis in experts["owners"]} | {axis: WIDTHS[name] for axis in experts["width"]}
    return {axis: chosen.get(axis, Replicate()) for axis in axes}


class ExpertParallel(ParallelStyle):
    """A rank computes its experts, or its part of their width, for the tokens of all ranks that share the experts.

    `experts` has the axes of `mesh` whose ranks have different experts ("owners"), or parts of each ("width"). Ranks of an axis in `alike`
    read the same tokens; those of the others have tokens of their own, and their gradients of experts are averaged, as data parallelism
    averages those of other weights.
    """

    def __init__(self, mesh, experts, alike):
        super().__init__()
        self.axes = [axis for axis in mesh.mesh_dim_names if axis in experts["owners"] + experts["width"]]
        self.mesh, self.experts = mesh[tuple(self.axes)], experts
        self.tokens = [Replicate() if axis in alike else Shard(0) for axis in self.axes]
        self.copies = math.prod(self.mesh.size(at) for at, axis in enumerate(self.axes) if axis not in alike)

    def _apply(self, module, device_mesh):
        for name, parameter in list(module.named_parameters(recurse=False)):
            placed = placements(self.experts, name, self.axes).values()
            shards = distribute_tensor(parameter.detach(), self.mesh, list(placed), src_data_rank=self.src_data_rank)
            module.register_parameter(name, torch.nn.Parameter(shards, parameter.requires_grad))
        owners = [at for at, axis in enumerate(self.axes) if axis in self.experts["owners"]]
        module.num_experts //= math.prod(self.mesh.size(at) for at in owners)
        place = functools.reduce(lambda place, at: place * self.mesh.size(at) + self.mesh.get_local_rank(at), owners, 0)
        # A module of `transformers` then skips slots of an expert that it does not have.
        module._is_expert_parallel = True
        module.forward = functools.partial(self.forward, module, module.forward, place * module.num_experts)
        return module

    def forward(self, module, own_forward, first, hidden_states, top_k_index, top_k_weights):
        hidden_states, index, weights = map(self.gather, (hidden_states, top_k_index, top_k_weights))
        absent = (index < first) | (index >= first + module.num_experts)
        index, weights = (index - first).masked_fill(absent, module.num_experts), weights.masked_fill(absent, 0)
        shards = dict(module._parameters)
        try:
            module._parameters.update({name: self.local(shard) for name, shard in shards.items()})
            output = own_forward(hidden_states, index, weights)
        finally:
            module._parameters.update(shards)
        partial = [Partial()] * len(self.axes)
        return DTensor.from_local(output, self.mesh, partial, run_check=False).redistribute(placements=self.tokens).to_local()

    def gather(self, tensor):
        """The rows of all ranks; what a rank computes of them is a part of their gradient."""
        rows = DTensor.from_local(tensor, self.mesh, self.tokens, run_check=False)
        everywhere, partial = [Replicate()] * len(self.axes), [Partial()] * len(self.axes)
        return rows.redistribute(placements=everywhere).to_local(grad_placements=partial)

    def local(self, shard):
        own = shard.to_local()
        if own.requires_grad and self.copies > 1:
            own.register_hook(lambda gradient: gradient / self.copies)
        return own
