"""MaxText's own reading of a file: its configuration, its checks, and the degrees of its mesh.

Runs in the environment of MaxText. A line of standard input is a job, `{"text", "world", "nodes"}`; the answer is a line, `{"why", "read"}`.
The number of devices and that of nodes are answered by the job: here is one processor.
"""

import json
import math
import os
import sys
import tempfile

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["DECOUPLE_GCLOUD"] = "TRUE"
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

from answering import serve
import jax
import rows
from maxtext.configs import pyconfig, types
from maxtext.utils import max_utils

BASE = os.path.join(os.path.dirname(pyconfig.__file__), "base.yml")
# A place of one run, which an export leaves to the user.
OF_A_RUN = ["run_name=planned", "base_output_directory=/tmp", "skip_jax_distributed_system=True", "enable_checkpointing=False", "log_config=False"]


def accepted(job):
    """What MaxText's configuration of a job states.

    Raises what MaxText raises."""
    jax.devices = lambda *_: [None] * job["world"]
    max_utils.get_num_slices = lambda _: job["nodes"]
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        file.write(job["text"])
        file.flush()
        read = pyconfig.initialize(["", file.name, *OF_A_RUN])
    within = max_utils.fill_unspecified_mesh_axes(list(read.ici_parallelism), job["world"] // job["nodes"], "ICI")
    across = max_utils.fill_unspecified_mesh_axes(list(read.dcn_parallelism), job["nodes"], "DCN")
    degrees = {axis: inner * outer for axis, inner, outer in zip(read.mesh_axes, within, across)}
    is_pipeline = read.using_pipeline_parallelism
    return {
        "world": math.prod(degrees.values()), "degrees": {axis: degree for axis, degree in degrees.items() if degree > 1}, "global_batch": read.global_batch_size_to_train_on, "seq": read.max_target_length,
        "accumulated": read.gradient_accumulation_steps, "microbatches": read.num_pipeline_microbatches if is_pipeline else 1, "vp": read.num_pipeline_repeats if is_pipeline else 1,
        "remat": read.remat_policy, "dtype": str(read.dtype), "weights": str(read.weight_dtype), "gradients": str(read.grad_dtype), "moments": str(read.mu_dtype or read.weight_dtype),
        "quantization": read.quantization, "optimizer": read.opt_type, "sharded_states": read.shard_optimizer_over_data, "host": read.optimizer_memory_host_offload, "attention": read.attention, "hardware": str(read.hardware),
        "strategy": str(getattr(read.context_parallel_strategy, "value", read.context_parallel_strategy)), "capacity": read.capacity_factor, "megablox": read.megablox, "packing": read.packing, "scan": read.scan_layers,
        "layers": read.num_decoder_layers, "hidden": read.emb_dim, "heads": read.num_query_heads, "kv_heads": read.num_kv_heads, "vocabulary": read.vocab_size, "experts": read.num_experts,
    }


def flags():
    """A row for each key, with the default of `base.yml` where it has one."""
    defaults = pyconfig.omegaconf.OmegaConf.to_container(pyconfig.omegaconf.OmegaConf.load(BASE))
    for name, field in types.MaxTextConfig.model_fields.items():
        default = defaults.get(name, "" if field.is_required() else field.default)
        group = next((kind.__name__ for kind in types.MaxTextConfig.__mro__ if name in vars(kind).get("__annotations__", {})), "")
        yield rows.row(name, group, field.annotation, str(getattr(default, "value", default)))


if sys.argv[1:] == ["--flags"]:
    print(json.dumps(list(flags())), file=ANSWERS, flush=True)
else:
    serve(accepted, ANSWERS)
