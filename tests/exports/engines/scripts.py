"""Runs exported scripts up to the processes that they start."""

import json
import os
import re
import subprocess

# Takes the place of the launchers, and writes down how the first process would be started.
STUB = """#!/usr/bin/env python3
import json, os, sys
if os.path.exists(os.environ["STARTED"]): sys.exit()
json.dump({"program": os.path.basename(sys.argv[0]), "words": sys.argv[1:], "environment": dict(os.environ)}, open(os.environ["STARTED"], "w"))
"""
# Compute capability of the devices of the clusters, by the beginnings of their names.
CAPABILITIES = {"h": (9, 0), "a": (8, 0), "b": (10, 0), "g": (10, 0)}


def job(engine, plan, text, case, folder, original=None):
    """What the reader of an engine is given of an export."""
    if engine == "torchtitan":
        # What a registry's entry states anyway is not missed where it is left out.
        model = plan["inputs"]["model"] if original is None else ""
        return {"text": text, "world": devices(plan), "model": model, "environment": {}}
    if engine == "megatron-bridge":
        # A variable that the file takes away is there before.
        variables = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if "os.environ.pop" in (original or text) else {}
        return {"text": text, "world": devices(plan), "capability": capability(case), "environment": variables}
    if engine == "maxtext":
        count, nodes = devices(plan), int(re.search(r"On each of (\d+) nodes", original or text)[1])
        return {"text": text, "world": count, "nodes": nodes, "environment": {}}
    if engine != "megatron":
        return {"text": text, "world": devices(plan), "dp": plan["parallel"]["dp"], "environment": {}}
    return started(text, case, folder, original)


def started(text, case, folder, original=None):
    """The job that a script starts: arguments of the first process, its environment and the number of all processes."""
    stubs, told, script = folder / "stubs", folder / "started.json", folder / "run.sh"
    stubs.mkdir(exist_ok=True)
    for name in ("torchrun", "srun", "python", "scontrol"):
        (stubs / name).write_text(STUB if name != "scontrol" else "#!/bin/sh\necho first\n")
        (stubs / name).chmod(0o755)
    told.unlink(missing_ok=True)
    script.write_text(text)
    environment = {"PATH": f"{stubs}:{os.environ['PATH']}", "STARTED": str(told), "HEAD": "first", "SLURM_JOB_NODELIST": "first", "HOME": str(folder)}
    if "unset CUDA_DEVICE_MAX_CONNECTIONS" in (original or text):
        environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    done = subprocess.run(["bash", str(script)], env=environment, capture_output=True, text=True, cwd=folder)
    if not told.exists():
        raise SystemExit(f"a script starts nothing: {done.stderr}\n{text}")
    run = json.loads(told.read_text())
    words = run["words"]
    at = next(nth for nth, word in enumerate(words) if word.endswith(".py"))
    variables = {name: value for name, value in run["environment"].items() if name.isupper()}
    return {"argv": words[at + 1 :], "environment": variables, "world": world(run, text, words[:at]), "capability": capability(case)}


def capability(case):
    """Compute capability of the devices of a case."""
    return CAPABILITIES[case["words"][case["words"].index("--cluster") + 1][0]]


def devices(plan):
    """The devices of a plan."""
    parallel = plan["parallel"]
    return parallel["dp"] * parallel["tp"] * parallel["pp"] * parallel["cp"]


def world(run, text, words):
    """The number of processes that a launcher starts."""
    if run["program"] == "torchrun":
        nodes = words[words.index("--nnodes") + 1] if "--nnodes" in words else "1"
        return int(words[words.index("--nproc-per-node") + 1]) * int(nodes)
    if run["program"] == "srun":
        nodes, tasks = (int(re.search(rf"#SBATCH --{name}=(\d+)", text)[1]) for name in ("nodes", "ntasks-per-node"))
        assert nodes * tasks == int(run["environment"]["WORLD_SIZE"]), text
        return nodes * tasks
    return int(run["environment"]["WORLD_SIZE"])


def without(text, assumed):
    """The script without the flags and variables of an assumption."""
    lines = text.splitlines()
    gone = {f"    {flag}" for flag in assumed["flags"]} | set(assumed["flags"])
    gone |= {f"export {it['name']}={it['value']}" if it["value"] is not None else f"unset {it['name']}" for it in assumed["environment"]}
    return "\n".join(line for line in lines if line not in gone) + "\n"
