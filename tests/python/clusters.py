"""The program of `calibrate --script torch` measures cores with gloo; its file is a cluster that predictions take."""

import json
import pathlib
import subprocess
import sys

BINARY = sys.argv[1]


def command(*words):
    done = subprocess.run([BINARY, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


command("calibrate", "--script", "torch", "-o", "measure.py")
for processes in (2, 4):
    file = f"cluster-{processes}.toml"
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "measure.py", "--quick", file]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    cluster = json.loads(command("clusters", file, "--format", "json"))
    assert cluster["cores"] and cluster["device"]["flops_f32"] > 1e8 and len(cluster["links"]) == 1, cluster
    told = pathlib.Path(file).read_text()
    assert all(what in told for what in ("# product 128x256", "# attention backward", "# all-reduce, 2 ranks", "# message there and back")), told
    job = ["tiny-llama", "--seq", "128", "--global-batch", "16", "--parallel", f"dp={processes}", "--precision", "f32", "--stack", "meshwright-threads"]
    step = json.loads(command("estimate", *job, "--cluster", file, "--format", "json"))["predicted"]["step_time_s"]
    print(f"{processes} processes: a step of tiny-llama takes {step:.3g} s on what was measured", flush=True)
table = command("clusters", "cluster-2.toml", "--compare", "cluster-4.toml")
assert "device.flops_f32" in table and "links[0].bandwidth" in table and "DIFFERENCE" in table, table
