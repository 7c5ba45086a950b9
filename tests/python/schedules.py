"""Schedules made in Python run in torch.distributed.pipelining, with the gradients of a step without a pipeline."""

import os
import socket

import meshwright
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage

WIDTH, MICROBATCHES, RANKS = 8, 8, 4
KINDS = [("1f1b", {}), ("zb-h1", {}), ("interleaved-1f1b", {"chunks": 2}), ("zb-v", {})]


class Exported:
    """The file of `export --to torch-pipelining`."""

    def __init__(self, text):
        self.text = text

    def scope(self):
        scope = {"__name__": "pipeline"}
        exec(self.text, scope)
        return scope

    def ranks(self):
        return self.scope()["RANKS"]

    def runtime(self, stages, loss_fn):
        return self.scope()["schedule"](stages, loss_fn)


def blocks(count):
    torch.manual_seed(0)
    return [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()).double() for _ in range(count)]


def data():
    torch.manual_seed(1)
    return torch.randn(2, MICROBATCHES, WIDTH, dtype=torch.float64).unbind()


def loss_of(output, target):
    return ((output - target) ** 2).mean()


def run(rank, port, schedules):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    for name, schedule in schedules.items():
        owners = schedule.ranks()
        parts, whole = blocks(len(owners)), blocks(len(owners))
        x, target = data()
        loss_of(torch.nn.Sequential(*whole)(x), target).backward()
        mine = [stage for stage, owner in enumerate(owners) if owner == rank]
        stages = [PipelineStage(parts[stage], stage, len(owners), torch.device("cpu")) for stage in mine]
        schedule.runtime(stages, loss_of).step(*((x,) if 0 in mine else ()), target=target)
        for stage in mine:
            for ours, theirs in zip(parts[stage].parameters(), whole[stage].parameters()):
                torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-12, atol=1e-15)
        dist.barrier()
        if rank == 0:
            print(f"{name} on {RANKS} ranks: gradients of torch.distributed.pipelining are those of the whole batch", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    schedules = {kind: meshwright.schedule(kind, stages=RANKS, microbatches=MICROBATCHES, **options) for kind, options in KINDS}
    for schedule in schedules.values():
        assert [len(row) for row in schedule.pipeline_order().values()] == [len(row) for row in schedule.order]
    job = dict(gpus=RANKS, seq=128, global_batch=MICROBATCHES, precision="f32", beyond_stack=True)
    plan = meshwright.estimate("tiny-llama", **job, parallel="pp=4,schedule=zb-h1")
    schedules["the pipeline of a plan"] = plan.schedule()
    schedules["its export"] = Exported(plan.export("torch-pipelining").text)
    mp.spawn(run, (free_port(), schedules), nprocs=RANKS)
