"""What an engine reads from an export, field by field beside the plan."""

from engines.scripts import devices


def differences(engine, plan, answer, read, job):
    """The fields that differ, as text."""
    expected = {"megatron": megatron, "megatron-bridge": megatron, "torchtitan": torchtitan, "nanotron": nanotron, "deepspeed": deepspeed, "maxtext": maxtext}[engine](plan, answer, read)
    wrong = [f"{name}: the plan has {value!r}, the engine reads {read.get(name)!r}" for name, value in expected.items() if not same(value, read.get(name))]
    variable = read["connections"] if engine == "megatron-bridge" else job["environment"].get(CONNECTIONS)
    if engine.startswith("megatron") and variable != (wanted := connections(plan, read, answer, job)):
        wrong.append(f"{CONNECTIONS} is {variable}, not {wanted}")
    if job["world"] != devices(plan):
        wrong.append(f"{job['world']} processes are started, not {devices(plan['parallel'])}")
    return wrong


CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"


def connections(plan, read, answer, job):
    """One connection where kernels start in order, before Blackwell; none for FSDP, which refuses that; many where experts overlap."""
    parallel = plan["parallel"]
    if parallel["zero"] >= 2:
        return None
    if job["capability"][0] >= 10 or overlaps_experts(plan, read, answer):
        return "32"
    return "1" if parallel["tp"] * parallel["cp"] > 1 else None


def recomputes_whole(parallel):
    """Layers or their experts are recomputed as they are."""
    kind, _, modules = parallel["recompute"].partition(":")
    return kind == "full" or "moe" in modules.split("+")


def overlaps_experts(plan, read, answer):
    """Exchanges are hidden: Megatron Core takes them in 16 bits, with interleaved stages, and nothing that is recomputed whole."""
    parallel = plan["parallel"]
    is_interleaved = parallel["pp"] == 1 or len(plan["stages"]) > parallel["pp"]
    takes = is_interleaved and not recomputes_whole(parallel) and plan["inputs"]["precision"] != "f32" and read["further"] <= 1
    return bool(read["experts"]) and "ep" in answer["stack"]["hides"] and parallel["ep"] > 1 and takes


def replays(plan, read, answer):
    """Kernels of all layers are replayed: Megatron Core offloads and recomputes nothing whole, and Megatron-FSDP hides no exchanges."""
    parallel = plan["parallel"]
    if answer["stack"]["launch"]["graphs"] == "dense":
        # Those of few recipes, where launches take a noticeable share of the step.
        return any(row["name"] == "launches by CUDA graphs" for row in answer["assumed"])
    takes = not recomputes_whole(parallel) and parallel["offload"] == "none" and not (parallel["zero"] >= 2 and overlaps_experts(plan, read, answer))
    return answer["stack"]["launch"]["graphs"] == "all" and takes


def same(expected, read):
    if isinstance(expected, set):
        return read in expected
    return expected == read


def megatron(plan, answer, read):
    parallel, inputs = plan["parallel"], plan["inputs"]
    lost = {note["key"] for note in answer["notes"]}
    stages = layers_of(plan, read["num_layers"])
    vp = len(stages) // parallel["pp"]
    has_experts = bool(read["experts"])
    replicas = parallel["dp"] * parallel["cp"]
    stack = answer["stack"]
    narrow = gradient_bytes(inputs, stack) < 4
    expected = {
        "world": devices(plan), "dp": parallel["dp"], "tp": parallel["tp"], "pp": parallel["pp"], "cp": parallel["cp"], "sp": parallel["sp"] and parallel["tp"] > 1,
        "mbs": parallel["mbs"], "seq": inputs["seq"], "global_batch": inputs["global_batch"], "microbatches": inputs["global_batch"] // parallel["dp"] // parallel["mbs"],
        "dropout": [0.0, 0.0], "vp": vp,
        "layers": [stages[chunk * parallel["pp"] : (chunk + 1) * parallel["pp"]] for chunk in range(vp)],
        "gradient": "float32" if inputs["precision"] == "f32" or not narrow else "float16" if inputs["precision"] == "fp16" else "bfloat16",
        "loss": "native" if "loss" in stack["kernels"]["fused"] else False,
        "attention": {"cudnn": "fused", "unfused": "unfused"}.get(stack["kernels"]["attention"], "flash"),
        "overlap_grad_reduce": replicas > 1 and hides(parallel["dp_overlap"], "dp", stack),
        "graphs": "transformer_engine" if replays(plan, read, answer) else "none",
        "tp_overlap": parallel["tp"] > 1 and parallel["sp"] and hides(parallel["tp_overlap"], "tp", stack),
    }
    if replicas > 1:
        expected["zero"] = parallel["zero"]
    if parallel["zero"] >= 2:
        expected["checkpoint"] = "fsdp_dtensor"
    recompute = parallel["recompute"]
    if "recompute" not in lost:
        kind, _, detail = recompute.partition(":")
        expected["recompute"] = None if kind == "none" else kind
        expected["modules"] = sorted((detail or "core_attn").split("+")) if kind == "selective" else []
    if read["further"]:
        del expected["layers"]
    if parallel["pp"] > 1 and vp > 1:
        expected["group"] = parallel["group"] or parallel["pp"]
    if has_experts:
        backend = "hybridep" if plan["inputs"]["cluster"].startswith("gb") else "deepep"
        once = stack["experts"]["dispatch"] == "once_per_node" and parallel["ep"] * parallel["etp"] > 1 and read["capacity"] is None
        expected |= {"ep": parallel["ep"], "etp": parallel["etp"], "grouped": True, "dispatcher": "flex" if once else "alltoall", "backend": backend if once else None,
                     "ep_overlap": overlaps_experts(plan, read, answer), "permute": "permute" in stack["kernels"]["fused"], "router": "router" in stack["kernels"]["fused"]}
    if inputs["optimizer"] == "adamw-bf16" or parallel["offload_optimizer"]:
        expected["precision_aware"] = True
    if inputs["optimizer"].startswith("adamw"):
        moment = "bfloat16" if inputs["optimizer"] == "adamw-bf16" else "float32"
        expected["moments"] = [moment, moment]
    if parallel["rank_order"] == ["pp", "dp", "cp", "tp"]:
        tp, cp, dp = parallel["tp"], parallel["cp"], parallel["dp"]
        expected["first_ranks"] = {"tp": list(range(tp)), "cp": [tp * nth for nth in range(cp)], "dp": [tp * cp * nth for nth in range(dp)],
                                   "pp": [tp * cp * dp * nth for nth in range(parallel["pp"])]}
    return expected


SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved-1f1b": "Interleaved1F1B", "looped-bfs": "LoopedBFS", "interleaved-zb": "InterleavedZeroBubble",
             "zb-v": "ZBVZeroBubble", "dualpipe-v": "DualPipeV"}


def torchtitan(plan, answer, read):
    parallel, inputs = plan["parallel"], plan["inputs"]
    lost = {note["key"] for note in answer["notes"]}
    stack, is_pipeline = answer["stack"], parallel["pp"] > 1
    is_compiled = "swiglu" in stack["kernels"]["fused"]
    expected = {
        "dp": parallel["dp"], "tp": parallel["tp"], "pp": parallel["pp"], "cp": parallel["cp"], "sp": parallel["sp"] and parallel["tp"] > 1, "mbs": parallel["mbs"],
        "seq": inputs["seq"], "global_batch": inputs["global_batch"], "compiled": is_compiled, "graphs": stack["launch"]["graphs"] != "none",
        "async_tp": is_compiled and parallel["tp"] > 1 and parallel["sp"] and hides(parallel["tp_overlap"], "tp", stack),
        "parameters": "float32" if inputs["precision"] == "f32" else "bfloat16", "offload": parallel["offload_optimizer"],
        "schedule": SCHEDULES.get(parallel["schedule"], "_PipelineScheduleRuntime") if is_pipeline else None,
    }
    if is_pipeline:
        expected["parts"] = layers_of(plan, sum(read["parts"]))
    if parallel["ep"] > 1:
        expected["ep"] = parallel["ep"]
    if parallel["zero"] and "shard" not in lost:
        expected["shard"] = (parallel["shard"] or parallel["dp"] * parallel["cp"]) // parallel["cp"]
        expected["reshard"] = "always" if parallel["zero"] == 3 and parallel["gather"] != "step" else "never"
    if "recompute" not in lost:
        expected["recompute"] = {"none": None, "full": "FullAC"}.get(parallel["recompute"], "SelectiveAC")
    return expected


def microbatches(plan):
    parallel = plan["parallel"]
    return plan["inputs"]["global_batch"] // parallel["dp"] // parallel["mbs"]


def nanotron(plan, answer, read):
    parallel, inputs = plan["parallel"], plan["inputs"]
    lost = {note["key"] for note in answer["notes"]}
    expected = {"dtype": "float32" if inputs["precision"] == "f32" else "bfloat16", "dp": parallel["dp"], "pp": parallel["pp"], "tp": parallel["tp"], "ep": parallel["ep"], "sp": parallel["sp"], "seq": inputs["seq"],
                "mbs": parallel["mbs"], "microbatches": microbatches(plan), "wide": inputs["precision"] != "f32" and gradient_bytes(inputs, answer["stack"]) >= 4}
    if parallel["tp"] > 1 and parallel["sp"]:
        expected["tp_overlap"] = hides(parallel["tp_overlap"], "tp_backward", answer["stack"])
    if "zero" not in lost:
        expected["zero"] = parallel["zero"]
    if parallel["pp"] > 1 and "schedule" not in lost:
        expected["engine"] = {"gpipe": "AllForwardAllBackwardPipelineEngine", "1f1b": "OneForwardOneBackwardPipelineEngine"}[parallel["schedule"]]
    return expected


def deepspeed(plan, answer, read):
    parallel, inputs = plan["parallel"], plan["inputs"]
    lost = {note["key"] for note in answer["notes"]}
    expected = {"global_batch": inputs["global_batch"], "mbs": parallel["mbs"], "microbatches": microbatches(plan), "zero": parallel["zero"],
                "host": parallel["offload_optimizer"], "bf16": inputs["precision"] == "bf16", "fp16": inputs["precision"] == "fp16"}
    if "grad_dtype" not in lost and inputs["precision"] != "f32" and parallel["zero"] < 2:
        narrow = {"bf16": "bf16", "fp16": "fp16"}[inputs["precision"]]
        expected["accumulated"] = "fp32" if gradient_bytes(inputs, answer["stack"]) >= 4 else narrow
    return expected


REMAT = {"selective:core_attn+layernorm+mlp": "save_dot_except_mlp", "selective:core_attn+layernorm": "minimal", "selective:layernorm": "minimal_with_context",
         "selective:layernorm+mlp": "save_dot_with_context_except_mlp", "full": "full"}
QUANTIZATIONS = {"fp8-tensor": "te_fp8_currentscaling", "fp8-delayed": "te_fp8_delayedscaling", "mxfp8": "te_mxfp8", "nvfp4": "te_nvfp4"}


def maxtext(plan, answer, read):
    parallel, inputs = plan["parallel"], plan["inputs"]
    lost = {note["key"] for note in answer["notes"]}
    stack, experts = answer["stack"], read["experts"] > 1
    ep = parallel["ep"] if experts and parallel["dp"] % parallel["ep"] == 0 else 1
    expected = {
        "world": devices(plan), "global_batch": inputs["global_batch"], "seq": inputs["seq"], "accumulated": microbatches(plan) if parallel["pp"] == 1 else 1,
        "microbatches": microbatches(plan) if parallel["pp"] > 1 else 1, "hardware": "gpu", "attention": "dot_product" if stack["kernels"]["attention"] == "unfused" else "cudnn_flash_te",
        "packing": False, "weights": "float32", "dtype": {"f32": "float32", "fp16": "float16"}.get(inputs["precision"], "bfloat16"), "host": parallel["offload_optimizer"],
        "gradients": "float32" if inputs["precision"] == "f32" or gradient_bytes(inputs, stack) >= 4 else "bfloat16",
        "sharded_states": parallel["zero"] == 1 and parallel["dp"] > 1,
    }
    if experts:
        expected["megablox"] = False
    if "precision" not in lost:
        expected["quantization"] = QUANTIZATIONS.get(inputs["precision"], "")
    if "recompute" not in lost:
        expected["remat"] = REMAT[parallel["recompute"]]
    if parallel["pp"] > 1 and "stages" not in lost:
        expected["vp"] = len(plan["stages"]) // parallel["pp"]
    degrees = {"stage": parallel["pp"], "context": parallel["cp"], "tensor_sequence" if parallel["sp"] else "tensor": parallel["tp"], "expert": ep}
    if parallel["zero"] < 3:
        degrees["data"] = parallel["dp"] // ep
    elif "shard" not in lost:
        degrees["fsdp"] = (parallel["shard"] or parallel["dp"] * parallel["cp"]) // parallel["cp"] // ep
        degrees["data"] = parallel["dp"] // ep // degrees["fsdp"]
    if parallel["zero"] < 3 or "shard" not in lost:
        expected["degrees"] = {axis: degree for axis, degree in degrees.items() if degree > 1}
    return expected


def hides(pinned, kind, stack):
    return pinned if pinned is not None else kind in stack["hides"]


def gradient_bytes(inputs, stack):
    if inputs["grad_dtype"]:
        return {"f32": 4, "fp32": 4, "bf16": 2, "fp16": 2}[inputs["grad_dtype"]]
    return stack["formats"]["gradient_bytes"]


def layers_of(plan, layers):
    """Layers of each stage, in the order of the model: its blocks less the embedding and the head."""
    starts = [stage["start"] for stage in plan["stages"]] + [layers + 2]
    blocks = [end - start for start, end in zip(starts, starts[1:])]
    blocks[0] -= 1
    blocks[-1] -= 1
    return blocks
