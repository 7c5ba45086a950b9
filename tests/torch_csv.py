"""Runs schedules of `meshwright schedule --format csv` in torch.distributed.pipelining and compares gradients.

A stack of small residual blocks is cut into the stages of each schedule and trained one step over as many processes as
the schedule has ranks (gloo, on processors). Its gradients must be those of the same step without a pipeline.

    python3 -m pip install torch
    cargo build --release
    python3 tests/torch_csv.py target/release/meshwright

With `--dump DIR` torch's own schedules are written as CSV into DIR as well, read with `--from`, timed, written again with
`--format csv` and run like ours.
"""

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining import schedules as torch_schedules

WIDTH, BATCH = 16, 24

# What is asked for: name, options, ranks, micro-batches.
CASES = [
    ("gpipe", ["--kind", "gpipe"], 4, 8),
    ("gpipe, I and W apart", ["--kind", "gpipe", "--backward", "split"], 4, 8),
    ("1f1b", ["--kind", "1f1b"], 4, 8),
    ("1f1b, I and W apart", ["--kind", "1f1b", "--backward", "split"], 4, 8),
    ("1f1b, 12 micro-batches on 3", ["--kind", "1f1b"], 3, 12),
    ("zb-h1", ["--kind", "zb-h1"], 4, 8),
    ("zb-h2", ["--kind", "zb-h2"], 4, 8),
    ("zb-auto", ["--kind", "zb-auto"], 4, 8),
    ("interleaved-1f1b", ["--kind", "interleaved-1f1b", "--chunks", "2"], 4, 8),
    ("looped-bfs", ["--kind", "looped-bfs", "--chunks", "2"], 4, 8),
    ("interleaved-zb", ["--kind", "interleaved-zb", "--chunks", "2"], 4, 8),
    ("zb-v", ["--kind", "zb-v"], 4, 8),
    ("v-half", ["--kind", "v-half"], 4, 8),
    ("v-min", ["--kind", "v-min"], 4, 8),
    ("1f1b-v", ["--kind", "1f1b-v"], 4, 8),
    ("dualpipe-v", ["--kind", "dualpipe-v"], 4, 8),
    ("hanayo", ["--kind", "hanayo"], 4, 8),
    ("zb-v-greedy", ["--kind", "zb-v-greedy"], 4, 8),
    ("v-auto", ["--kind", "v-auto"], 4, 8),
    ("grouped-interleaved", ["--kind", "grouped-interleaved", "--group", "3"], 4, 8),
    ("optimal", ["--kind", "optimal", "--memory-limit", "3"], 4, 8),
]


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.up = torch.nn.Linear(WIDTH, 2 * WIDTH)
        self.down = torch.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def blocks(count):
    torch.manual_seed(0)
    return [Block().double() for _ in range(count)]


def data():
    torch.manual_seed(1)
    return torch.randn(BATCH, WIDTH, dtype=torch.float64), torch.randn(BATCH, WIDTH, dtype=torch.float64)


def loss_of(output, target):
    return ((output - target) ** 2).mean()


def plain_gradients(stages):
    """Gradients of the whole batch, by stage and parameter."""
    parts = blocks(stages)
    x, target = data()
    loss_of(torch.nn.Sequential(*parts)(x), target).backward()
    return [{name: p.grad for name, p in part.named_parameters()} for part in parts]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_rank(rank, port, path, ranks, stages, microbatches, owners, errors):
    """One process: loads the CSV, runs a step, and notes the largest relative difference of its gradients."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    parts, expected = blocks(stages), plain_gradients(stages)
    mine = [stage for stage, owner in enumerate(owners) if owner == rank]
    pipes = [PipelineStage(parts[stage], stage, stages, torch.device("cpu")) for stage in mine]
    runtime = torch_schedules._PipelineScheduleRuntime(pipes, microbatches, loss_fn=loss_of)
    runtime._load_csv(path, format="compute_only")
    x, target = data()
    inputs = (x,) if 0 in mine else ()
    runtime.step(*inputs, target=target)
    worst = 0.0
    for stage in mine:
        for name, parameter in parts[stage].named_parameters():
            want = expected[stage][name]
            worst = max(worst, ((parameter.grad - want).norm() / want.norm()).item())
    errors[rank] = worst
    dist.barrier()
    dist.destroy_process_group()


def read(path):
    """Each stage's rank, in the order of stages."""
    owners = {}
    with open(path) as file:
        for rank, line in enumerate(file):
            for stage in re.findall(r"(\d+)[FIWB]\d", line):
                owners[int(stage)] = rank
    return [owners[stage] for stage in range(len(owners))]


def run(path, ranks, microbatches):
    """Runs a CSV in torch; what came of it."""
    owners = read(path)
    errors = mp.Manager().dict()
    try:
        mp.spawn(run_rank, (free_port(), path, ranks, len(owners), microbatches, owners, errors), nprocs=ranks)
    except Exception as why:
        return f"torch refuses it: {str(why).strip().splitlines()[-1]}"
    worst = max(errors.values())
    verdict = "same" if worst < 1e-12 else "DIFFERENT"
    return f"{len(owners):2} stages  gradients {verdict}, off by {worst:.1e}"


def meshwright(binary, *options):
    return subprocess.run([binary, "schedule", *options], capture_output=True, text=True)


def try_case(binary, folder, options, ranks, microbatches):
    path = os.path.join(folder, "schedule.csv")
    sizes = ["--stages", str(ranks), "--microbatches", str(microbatches)]
    made = meshwright(binary, *sizes, *options, "--format", "csv", "-o", path)
    if made.returncode != 0:
        return "not made: " + made.stderr.splitlines()[0]
    told = json.loads(meshwright(binary, "--from", path, "--format", "json").stdout)
    return f"bubble {100 * told['bubble']:5.1f} %  {run(path, ranks, microbatches)}"


def torch_schedule(name, ranks, chunks, microbatches):
    """A schedule of torch's own, for one process that plays all ranks."""
    dist.init_process_group("gloo", rank=0, world_size=1, init_method=f"tcp://127.0.0.1:{free_port()}")
    try:
        pipe = PipelineStage(torch.nn.Linear(1, 1), 0, 1, torch.device("cpu"))
        pipe.num_stages, pipe.group_size = ranks * chunks, ranks
        return getattr(torch_schedules, name)([pipe] * chunks, microbatches, loss_fn=loss_of)
    finally:
        dist.destroy_process_group()


def dump(binary, folder):
    """Torch's own schedules, dumped and read back."""
    os.makedirs(folder, exist_ok=True)
    wanted = [
        ("ScheduleInterleaved1F1B", 2),
        ("ScheduleLoopedBFS", 2),
        ("ScheduleInterleavedZeroBubble", 2),
        ("ScheduleZBVZeroBubble", 2),
        ("ScheduleDualPipeV", 2),
    ]
    for name, chunks in wanted:
        for form in ("compute_only", "compute_comms"):
            path = os.path.join(folder, f"{name}.{form}.csv")
            try:
                schedule = torch_schedule(name, 4, chunks, 8)
                if form == "compute_comms":
                    schedule._prepare_schedule_with_comms(schedule.pipeline_order)
                schedule._dump_csv(path, format=form)
            except Exception as why:
                print(f"{name:32} {form:14} torch cannot dump it: {type(why).__name__}: {why}")
                continue
            answer = meshwright(binary, "--from", path, "--format", "json")
            if answer.returncode != 0:
                print(f"{name:32} {form:14} refused: {answer.stderr.splitlines()[0]}")
                continue
            told = json.loads(answer.stdout)
            again = path.replace(".csv", ".again.csv")
            meshwright(binary, "--from", path, "--format", "csv", "-o", again)
            print(f"{name:32} {form:14} bubble {100 * told['bubble']:5.1f} %  {run(again, 4, 8)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", help="the meshwright binary")
    parser.add_argument("--dump", metavar="DIR", help="dump torch's own schedules here and read them back")
    asked = parser.parse_args()
    print(f"torch {torch.__version__}")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name, options, ranks, microbatches in CASES:
            told = try_case(asked.binary, folder, options, ranks, microbatches)
            failed |= "DIFFERENT" in told or "refuses" in told
            print(f"{name:28} {ranks} ranks {microbatches:3} micro-batches  {told}", flush=True)
    if asked.dump:
        dump(asked.binary, asked.dump)
    sys.exit(failed)


if __name__ == "__main__":
    main()
