"""DeepSpeed's own reading of a file: its configuration classes and their checks.

Runs in the environment of DeepSpeed, with `DS_ACCELERATOR=cpu`. A line of standard input is a job, `{"text", "dp"}`; the answer is a line,
`{"why", "read"}`.
"""

import json
import os
import re

os.environ["DS_ACCELERATOR"] = "cpu"
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

from answering import serve
import deepspeed
import deepspeed.runtime.config as config

# Questions about processes, of which there is one.
config.dist.get_rank = lambda *_: 0
config.dist.get_world_size = lambda *_: 1


class Ranks:
    def __init__(self, dp):
        self.dp = dp

    def get_data_parallel_world_size(self):
        return self.dp


def known():
    """Keys of the top level: DeepSpeed ignores others without a word."""
    folder = os.path.dirname(deepspeed.__file__)
    names = set()
    for place, _, files in os.walk(folder):
        for name in files:
            if name in ("constants.py", "config.py", "config_utils.py"):
                with open(os.path.join(place, name)) as source:
                    names |= set(re.findall(r'= ["\'](\w+)["\']|get\("(\w+)"|\["(\w+)"\]', source.read()))
    return {name for found in names for name in found if name}


KNOWN = known()


def accepted(job):
    """What DeepSpeed's configuration of a job states.

    Raises what DeepSpeed raises."""
    stated = json.loads(job["text"])
    if unknown := [name for name in stated if name not in KNOWN]:
        raise ValueError(f"DeepSpeed ignores {unknown}")
    read = config.DeepSpeedConfig(stated, mpu=Ranks(job["dp"]))
    return {
        "global_batch": read.train_batch_size, "mbs": read.train_micro_batch_size_per_gpu, "microbatches": read.gradient_accumulation_steps, "zero": read.zero_optimization_stage,
        "overlap": read.zero_config.overlap_comm, "host": read.zero_config.offload_optimizer is not None,
        "bf16": read.bfloat16_config.enabled, "fp16": read.float16_config.enabled, "accumulated": read.grad_accum_dtype, "tp": read.tensor_parallel_config.autotp_size,
    }


serve(accepted, ANSWERS)
