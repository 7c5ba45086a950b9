"""Drawn cases: requests of `plan`, and pinned configurations of `estimate`."""

STACKS = {"megatron": ["megatron-core-2025", "megatron-core-2026", "megatron-core-2025-alltoall", "megatron-core-2025-drop"],
          "torchtitan": ["fsdp-compile-2026", "fsdp-compile", "fsdp-eager-2026"], "nanotron": ["nanotron-0.4"], "deepspeed": ["deepspeed-2021"], "maxtext": ["jax-2024"]}
SCHEDULES = {"megatron": ["1f1b", "interleaved-1f1b"], "torchtitan": ["gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "interleaved-zb", "zb-v", "dualpipe-v"],
             "nanotron": ["1f1b", "gpipe"], "deepspeed": ["1f1b"], "maxtext": ["gpipe", "looped-bfs"]}
# Models with the devices that hold them.
MODELS = [
    ("llama3-8b", 8), ("llama3-70b", 64), ("llama3.1-405b", 512), ("llama3.2-1b", 8), ("qwen3-8b", 8), ("qwen3-32b", 32), ("qwen2.5-7b", 8),
    ("mistral-7b", 8), ("gpt3-175b", 128), ("mixtral-8x7b", 32), ("mixtral-8x22b", 64), ("qwen3-30b-a3b", 16), ("qwen3-235b-a22b", 128),
    ("deepseek-v2", 128), ("deepseek-v3", 256), ("gpt-oss-20b", 16), ("gpt-oss-120b", 64), ("glm-4.5-air", 64), ("gpt2-xl", 8), ("llama4-scout", 64),
]
CLUSTERS = ["h100", "h100", "h100", "h800", "h200", "b200", "gb200", "a100"]
GPUS = [8, 12, 16, 24, 32, 48, 64, 96, 120, 128, 132, 256, 512, 1024]
PRECISIONS = ["bf16", "bf16", "bf16", "fp8-tensor", "fp8-block", "fp8-delayed", "mxfp8", "fp16"]
# Transformer Engine's recipes for JAX have no blocks.
PRECISIONS_OF_MAXTEXT = [precision for precision in PRECISIONS if precision != "fp8-block"]
LENGTHS = ["2048", "4096", "8192", "8192", "32768"]
BATCHES = ["64", "100", "128", "256", "512", "1024", "2000", "2048"]
LAUNCHES = ["torchrun", "slurm", "bare"]
RECOMPUTE = ["none", "none", "full", "full:2", "selective:core_attn", "selective:core_attn+mlp", "selective:layernorm", "selective:moe_act+layernorm", "selective:moe",
             "selective:mla_up_proj", "selective:shared_experts+moe_act"]


def lengths(engine, model):
    """Lengths that an engine's own model takes: torchtitan's DeepSeek has 16,384 positions."""
    return [length for length in LENGTHS if engine != "torchtitan" or not model.startswith("deepseek") or int(length) <= 16384]


def job(engine, rng):
    """The words of a job, without its configuration."""
    model, least = rng.choice(MODELS)
    gpus = rng.choice([gpus for gpus in GPUS if least <= gpus <= 16 * least])
    words = [model, "--cluster", rng.choice(CLUSTERS), "--stack", rng.choice(STACKS[engine]), "--gpus", str(gpus), "--seq", rng.choice(lengths(engine, model))]
    words += ["--global-batch", rng.choice(BATCHES), "--precision", rng.choice(PRECISIONS if engine == "megatron" else PRECISIONS_OF_MAXTEXT if engine == "maxtext" else ["bf16", "bf16", "f32"])]
    if engine != "megatron":
        return words, gpus
    if rng.random() < 0.2:
        words += ["--optimizer", rng.choice(["adamw-bf16", "sgd", "momentum"])]
    if rng.random() < 0.2:
        words += ["--grad-dtype", rng.choice(["f32", "bf16"])]
    return words, gpus


def keys(engine, rng, gpus):
    """A drawn configuration; many are none."""
    drawn = {key: rng.choice(values) for key, values in {
        "tp": [1, 1, 2, 4, 8], "pp": [1, 1, 1, 2, 3, 4, 8], "cp": [1, 1, 1, 2, 4], "ep": [1, 1, 2, 4, 8], "zero": [0, 1, 1, 2, 3], "mbs": [1, 1, 2, 4],
    }.items()}
    if engine == "deepspeed":
        drawn |= {"tp": 1, "pp": 1, "cp": 1, "ep": 1}
    if engine == "maxtext":
        drawn |= {"cp": 1, "ep": 1, "zero": rng.choice([0, 3, 3])}
    drawn["sp"] = "true" if drawn["tp"] > 1 and rng.random() < 0.8 else "false"
    if drawn["cp"] > 1:
        drawn["cp_kind"] = rng.choice(["ring", "allgather", "ulysses"])
    if drawn["ep"] > 1 and rng.random() < 0.3:
        drawn["etp"] = rng.choice([1, drawn["tp"]])
    if drawn["pp"] > 1:
        drawn["schedule"] = rng.choice(SCHEDULES[engine])
        if drawn["schedule"] in ("interleaved-1f1b", "looped-bfs"):
            drawn["vp"] = rng.choice([2, 2, 3, 4, 5])
            if drawn["schedule"] == "interleaved-1f1b" and rng.random() < 0.3:
                drawn["group"] = drawn["pp"] * rng.choice([1, 2]) + rng.choice([0, 1])
    drawn["recompute"] = rng.choice({"megatron": RECOMPUTE, "torchtitan": ["none", "full", "selective:op"], "maxtext": ["full", "none", "selective:core_attn+layernorm+mlp", "selective:layernorm", "selective:core_attn+layernorm"]}.get(engine, ["none"]))
    if drawn["zero"] and rng.random() < 0.2:
        drawn["shard"] = 8
    for key, value, chance in [("offload_optimizer", "true", 0.1), ("offload", "all:4", 0.05), ("tp_overlap", "false", 0.1), ("dp_overlap", "false", 0.1), ("rank_order", "dp,pp,cp,tp", 0.1)]:
        if rng.random() < chance:
            drawn[key] = value
    return ",".join(f"{key}={value}" for key, value in drawn.items())


def cases(engine, rng):
    """Cases without end: one request of `plan` for each three configurations."""
    # Both run Megatron Core.
    engine = engine.removesuffix("-bridge")
    while True:
        words, gpus = job(engine, rng)
        launch = rng.choice(LAUNCHES)
        if rng.random() < 0.25:
            yield {"command": "plan", "words": words, "gpus": gpus, "launch": launch}
        else:
            yield {"command": "estimate", "words": [*words, "--parallel", keys(engine, rng, gpus)], "gpus": gpus, "launch": launch}


def requests(engine, rng):
    """Requests of `plan` without end."""
    return (case for case in cases(engine, rng) if case["command"] == "plan")
