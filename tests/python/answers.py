"""Answers of the package are those of the command, byte by byte; and its stubs name the command's flags."""

import ast
import json
import pathlib
import pickle
import re
import subprocess
import sys
import time

BINARY = sys.argv[1]

began = time.perf_counter()
import meshwright  # noqa: E402

IMPORTED = time.perf_counter() - began

JOB = dict(cluster="h100", gpus=8, seq=4096, global_batch=64)
FLAGS = "--cluster h100 --gpus 8 --seq 4096 --global-batch 64"
TINY = {"model_type": "llama", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 8}


def command(*words):
    """What the command prints; refused calls too."""
    return subprocess.run([BINARY, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def timeless(text):
    """An answer without the seconds that a search took."""
    return re.sub(r'"seconds": [^\n,]*', "", text)


def same(answer, words, more=()):
    printed = command(*words.split(), *more, "--format", "json")
    assert printed.returncode == 0, printed.stderr
    assert timeless(answer) == timeless(printed.stdout), f"{words}: the answers differ"


def plans():
    plan = meshwright.plan("llama3-8b", **JOB)
    same(plan.json, f"plan llama3-8b {FLAGS}")
    same(meshwright.plan("llama3-8b", **JOB, pin={"tp": 2, "zero": "1|3"}, top=2).json, f"plan llama3-8b {FLAGS} --pin tp=2,zero=1|3 --top 2")
    same(meshwright.plan("tiny-moe", gpus=2, seq=128, global_batch=16, beyond_stack=True).json, "plan tiny-moe --gpus 2 --seq 128 --global-batch 16 --beyond-stack")
    same(meshwright.plan(TINY, gpus=2, seq="1k", global_batch=8).json, "plan --gpus 2 --seq 1k --global-batch 8", [json.dumps(TINY)])
    assert plan.fits and plan.step_time > 0 and plan.parallel["dp"] * plan.parallel["tp"] * plan.parallel["pp"] == 8, plan.parallel
    assert "WHY THIS CONFIGURATION" in str(plan)
    assert pickle.loads(pickle.dumps(plan)) == plan and "sharding" not in plan and plan["status"] == "ok"
    plan.save("plan.json")
    again = meshwright.open("plan.json")
    assert type(again) is meshwright.Plan and again.json == plan.json
    same(plan.why_not("tp=4").json, "explain plan.json --why-not tp=4")
    exported = plan.export("megatron", allow="schedule,rank_order")
    theirs = json.loads(command("export", "plan.json", "--to", "megatron", "--allow", "schedule,rank_order", "--format", "json").stdout)
    assert (exported.text, exported.notes) == (theirs["text"], theirs["notes"])
    assert plan.html().startswith("<!") and str(plan).endswith(command("explain", "plan.json").stdout)
    return plan


def estimates():
    tp2 = meshwright.estimate("llama3-8b", **JOB, parallel={"tp": 2, "zero": 1, "sp": True})
    same(tp2.json, f"estimate llama3-8b {FLAGS} --parallel tp=2,zero=1,sp=true")
    again = meshwright.estimate("llama3-8b", **JOB, parallel=tp2.parallel)
    assert again.step_time == tp2.step_time and again.parallel == tp2.parallel
    many = meshwright.estimate("llama3-8b", **JOB, parallel=["tp=2,zero=1,sp=true", {"tp": 3}, "nonsense"])
    assert many[0].step_time == tp2.step_time and isinstance(many[1], meshwright.Error) and many[2].code, many
    tp4 = meshwright.estimate("llama3-8b", **JOB, parallel="tp=4,zero=1")
    same(meshwright.diff("llama3-8b", "tp=2,zero=1", "tp=4,zero=1", **JOB).json, f"diff llama3-8b tp=2,zero=1 tp=4,zero=1 {FLAGS}")
    tp2.save("a.json")
    tp4.save("b.json")
    same(meshwright.diff(tp2, tp4).json, "diff a.json b.json")
    sizes = dict(layers=4, hidden=256, heads=8, ffn=512, vocab=1000)
    same(meshwright.estimate(**sizes, **JOB).json, f"estimate --layers 4 --hidden 256 --heads 8 --ffn 512 --vocab 1000 {FLAGS}")
    megatron = meshwright.estimate("llama3-8b", gpus=8, from_megatron="--tensor-model-parallel-size 2 --seq-length 4096 --global-batch-size 64 --bf16")
    assert megatron.parallel["tp"] == 2


def other_answers():
    kinds = [("1f1b", {}), ("zb-v", {"i": 1.2, "w": 0.8}), ("interleaved-1f1b", {"chunks": 2})]
    for kind, options in kinds:
        ours = meshwright.schedule(kind, stages=4, microbatches=8, **options)
        words = " ".join(f"--{name} {value}" for name, value in options.items())
        same(ours.json, f"schedule --stages 4 --microbatches 8 --kind {kind} {words}")
        theirs = command(*f"schedule --stages 4 --microbatches 8 --kind {kind} {words} --format csv".split()).stdout
        assert ours.csv() == theirs, kind
    stages = {"f": [1, 2, 1, 1], "i": 1, "w": 1}
    assert meshwright.schedule("1f1b", stages=4, microbatches=8, costs=stages)["makespan"] > 33
    assert ours.ranks() == [0, 1, 2, 3, 0, 1, 2, 3] and ours.svg().startswith("<svg") and "rank 0" in str(ours)
    reshard = meshwright.reshard({"x": 2, "y": 4}, (4096, 4096), "{x},{y}", "{},{x}", cluster="h100")
    same(reshard.json, "reshard --mesh x=2,y=4 --shape 4096,4096 --from {x},{y} --to {},{x} --cluster h100")
    assert {"llama3-8b", "mixtral-8x7b"} <= {model["name"] for model in meshwright.models()}
    assert meshwright.clusters() and meshwright.stacks() and {kind["name"] for kind in meshwright.schedules()} >= {"1f1b", "zb-v"}


def shards():
    shards = meshwright.estimate("llama3-8b", **JOB, parallel="tp=4,pp=2,sp=true").sharding()
    assert [(axis["name"], axis["size"]) for axis in shards["mesh"]] == [("pp", 2), ("tp", 4)], shards["mesh"]
    layer = {name.removeprefix("model.layers.7."): tensor for name, tensor in shards["tensors"].items() if ".7." in name}
    wanted = {"self_attn.q_proj": 0, "self_attn.k_proj": 0, "self_attn.v_proj": 0, "self_attn.o_proj": 1, "mlp.gate_proj": 0, "mlp.up_proj": 0, "mlp.down_proj": 1}
    assert {name: layer[f"{name}.weight"]["shards"].get("tp") for name in wanted} == wanted, layer
    assert layer["input_layernorm.weight"] == {"shape": [4096], "shards": {}} and layer["mlp.up_proj.weight"]["shape"] == [14336, 4096]
    assert shards["sequence_parallel"] and shards["family"] == "llama"
    experts = meshwright.estimate("mixtral-8x7b", **JOB, parallel="dp=8,ep=4").sharding()
    assert [axis["name"] for axis in experts["mesh"]] == ["edp", "ep"]
    assert any("unstated" in tensor for tensor in experts["tensors"].values())
    # Ranks that share a key head have parts of tp.
    shared = meshwright.estimate("llama3-8b", **JOB | {"gpus": 16}, parallel="tp=16")
    assert len([name for name, _ in shared.mesh() if name.startswith("tp")]) == 2, shared.mesh()


def errors():
    refused = command("plan", "llama3-70b", "--gpus", "1", "--seq", "4096", "--global-batch", "8", "--pin", "mbs=1", "--format", "json")
    try:
        meshwright.plan("llama3-70b", gpus=1, seq=4096, global_batch=8, pin="mbs=1")
        raise AssertionError("70 billion parameters fit on one device")
    except meshwright.Error as error:
        assert error.status == refused.returncode == 4 and error.code and error.message, error
        assert timeless(error.output) == timeless(refused.stdout) and error.answer["status"] == "infeasible"
        assert str(error) == refused.stderr.rstrip()
        assert pickle.loads(pickle.dumps(error)).code == error.code
    wrong = [
        (lambda: meshwright.plan("llama3-9b", **JOB), 1),
        (lambda: meshwright.plan("llama3-8b", **JOB, pins="tp=2"), 2),
        (lambda: meshwright.plan("llama3-8b"), 1),
        (lambda: meshwright.schedule("2f2b", stages=2, microbatches=2), 1),
        (lambda: meshwright.estimate("llama3-8b", **JOB, parallel={"tp": 3}), 1),
        (lambda: meshwright.estimate("llama3-8b", **JOB, parallel="pp=2,zero=3").export("deepspeed"), 1),
    ]
    for call, status in wrong:
        try:
            call()
        except meshwright.Error as error:
            assert error.status == status and re.fullmatch(r"MW\d{4}", error.code), (error.status, str(error))
        else:
            raise AssertionError("a wrong call has an answer")
    for name, value in [("format", "table"), ("output", "x"), ("help", True), ("why_not", "tp=2")]:
        try:
            meshwright.plan("llama3-8b", **JOB, **{name: value})
        except TypeError as error:
            assert name in str(error)
        else:
            raise AssertionError(f"{name} is taken")


def stubs():
    """The keywords of the stubs are the flags of the command."""
    text = pathlib.Path(meshwright.__file__).with_suffix(".pyi").read_text()
    classes = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}

    def keywords(name):
        fields = {field.target.id for field in classes[name].body if isinstance(field, ast.AnnAssign)}
        return fields.union(*(keywords(base.id) for base in classes[name].bases if base.id in classes))

    own = {"format", "output", "help", "why_not", "configs", "parallel", "kind", "compare"}
    for stub, subcommand in [("_Plan", "plan"), ("_Estimate", "estimate"), ("_Schedule", "schedule")]:
        options = command(subcommand, "--help").stdout.split("Examples:")[0]
        flags = {flag.replace("-", "_") for flag in re.findall(r"^ +(?:-\w, )?--([a-z-]+)", options, re.M)} - own
        ours = {name.rstrip("_") for name in keywords(stub)}
        assert ours == flags, f"{stub}: {sorted(ours ^ flags)}"


def scripts():
    """The package brings the command."""
    script = pathlib.Path(sys.executable).with_name("meshwright")
    version = subprocess.run([script, "--version"], capture_output=True, text=True)
    assert version.stdout == command("--version").stdout and meshwright.__version__ in version.stdout
    wrong = subprocess.run([sys.executable, "-m", "meshwright", "plan", "llama3-9b", *FLAGS.split()], capture_output=True, text=True)
    theirs = command("plan", "llama3-9b", *FLAGS.split())
    assert (wrong.returncode, wrong.stderr) == (theirs.returncode, theirs.stderr) and wrong.returncode == 1
    pathlib.Path("text.txt").write_text("a line of text\n\n" * 1000)
    train = "train tiny-gpt2 --data text.txt --steps 1 --seq 16 --global-batch 4 --parallel dp=2 --eval-batches 1 --out two --format json"
    launched = subprocess.run([script, "launch", "-n", "2", "--", *train.split()], capture_output=True, text=True)
    assert launched.returncode == 0, launched.stderr
    assert json.loads(launched.stdout)["devices"] == 2


def notebook():
    """The cells of the example run, one after the other."""
    path = pathlib.Path(__file__).resolve().parents[2] / "examples" / "plan.ipynb"
    cells = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    scope = {"print": lambda *_: None}
    for cell in cells:
        exec(cell, scope)
    assert len(cells) > 4 and "<svg" in scope["schedule"]._repr_svg_()


for test in (plans, estimates, other_answers, shards, errors, stubs, scripts, notebook):
    test()
assert "torch" not in sys.modules and "numpy" not in sys.modules
print(f"answers are those of the command; imported in {1000 * IMPORTED:.0f} ms")
