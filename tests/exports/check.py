"""Holds exports against the frameworks that read them.

Forty configurations are written for each framework. Every flag, key and field must be declared in the sources of its package, every value of
a choice must be one of those declared. `engines.py` asks the frameworks themselves.

    cargo build --release
    python3 tests/exports/check.py target/release/meshwright

The packages of `PACKAGES` come from PyPI; `--latest` takes their newest versions, and shows what those have changed.
"""

import argparse
import ast
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import zipfile

PACKAGES = {
    "megatron": "megatron-core==0.19.2",
    "torchtitan": "torchtitan==0.3.0",
    "nanotron": "nanotron==0.4",
    "deepspeed": "deepspeed==0.19.8",
    "maxtext": "maxtext==0.2.5",
}
DENSE = [
    "dp=64", "zero=1", "zero=2", "zero=3", "zero=3,shard=8", "zero=1,shard=8", "tp=8", "tp=8,sp=true,zero=1", "tp=4,sp=true,zero=3",
    "pp=4,zero=1", "pp=4,vp=2,schedule=interleaved-1f1b", "pp=2,tp=4,sp=true,zero=1", "pp=4,schedule=gpipe", "pp=4,schedule=zb-v",
    "pp=4,schedule=zb-h1", "pp=3,dp=16,tp=1,zero=1", "cp=4,cp_kind=ring", "cp=4,cp_kind=allgather,zero=1", "cp=2,cp_kind=ulysses,tp=4",
    "cp=2,cp_kind=ring,zero=3,shard=8", "recompute=full,zero=3", "recompute=full:8,zero=1", "recompute=selective:core_attn,zero=1",
    "recompute=selective:core_attn+mlp,tp=2", "recompute=selective:layernorm", "offload=all:4,zero=1", "offload_optimizer=true,zero=1",
    "zero=3,gather=step", "mbs=2,zero=3", "tp=8,pp=8,sp=true,zero=1", "rank_order=dp,pp,cp,tp,pp=4", "tp_overlap=true,tp=8,sp=true",
    "dp_overlap=false,zero=1", "pp=2,schedule=1f1b,recompute=full",
]
EXPERTS = ["ep=8,zero=1", "ep=8,zero=3", "ep=4,tp=4,sp=true,etp=4,zero=1", "ep=4,tp=2,sp=true,zero=1", "pp=4,ep=8,zero=1", "ep=8,recompute=selective:moe_act"]
JOBS = [("llama3-8b", keys) for keys in DENSE] + [("mixtral-8x7b", keys) for keys in EXPERTS]


def sources(package, folder):
    """The unpacked sources of a package."""
    name = re.split("[=<>]", package)[0]
    place = folder / package.replace("==", "-")
    if not place.exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "deepspeed"]
        newer = ["--python-version", "3.12", "--only-binary", ":all:"] if name != "deepspeed" else []
        subprocess.run([*command[:-2], *(newer or command[-2:]), "-d", place, package], check=True)
        (archive,) = place.iterdir()
        opened = zipfile.ZipFile(archive) if archive.suffix == ".whl" else tarfile.open(archive)
        opened.extractall(place)
    return place


def declared(place):
    """Fields of configuration classes and flags of parsers, with the values of choices."""
    names = {}
    for path in place.rglob("*.py"):
        try:
            tree = ast.parse(path.read_text())
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                for field in node.body:
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                        put(names, field.target.id, choices(field.annotation))
                        for flag in re.findall(r"'--([a-z0-9-]+)'", ast.unparse(field.value) if field.value else ""):
                            put(names, flag.replace("-", "_"), choices(field.annotation))
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                given = next((k.value for k in node.keywords if k.arg == "choices"), None)
                values = {str(v.value) for v in given.elts if isinstance(v, ast.Constant)} if isinstance(given, (ast.List, ast.Tuple)) else None
                for flag in (a.value for a in node.args if isinstance(a, ast.Constant) and str(a.value).startswith("--")):
                    put(names, flag[2:].replace("-", "_"), values)
    return names


def put(names, name, values):
    """A name that several classes have takes the values of each, and all values if one of them has no choices."""
    names[name] = None if values is None or names.get(name, set()) is None else names.get(name, set()) | values


def choices(annotation):
    text = ast.unparse(annotation)
    found = re.findall(r"Literal\[([^\]]*)\]", text)
    return {value.strip().strip("'\"") for part in found for value in part.split(",")} if found and "str" not in text.replace("strategy", "") else None


def of_megatron(text):
    body = text[text.index("FLAGS=(") + 7 : text.index("\n)")]
    for line in body.strip().splitlines():
        name, _, value = line.strip().lstrip("-").partition(" ")
        yield name.replace("-", "_"), [] if name in ("recompute-modules", "pipeline-model-parallel-layout") else value.split()


def of_torchtitan(text):
    for field, value in re.findall(r"config\.(?:parallelism|training)\.(\w+) = (.*)", text):
        yield field, [value.strip('"')] if value.startswith('"') else []


def of_yaml(text):
    for name, value in re.findall(r"^\s*(\w+):\s*(\S*)", text, re.M):
        yield name, [value.strip('"')] if '"' in value else []


def of_json(text):
    def walk(table):
        for name, value in table.items():
            yield name, []
            if isinstance(value, dict):
                yield from walk(value)

    return walk(json.loads(text))


READERS = {"megatron": of_megatron, "torchtitan": of_torchtitan, "nanotron": of_yaml, "deepspeed": of_json, "maxtext": of_yaml}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("binary")
    arguments.add_argument("--packages", type=pathlib.Path, default=pathlib.Path("target/exports"), help="folder of the unpacked packages")
    arguments.add_argument("--latest", action="store_true", help="the newest versions")
    options = arguments.parse_args()
    wrong, notes = [], 0
    for target, package in PACKAGES.items():
        package = package.split("==")[0] if options.latest else package
        place = sources(package, options.packages.resolve())
        names = declared(place)
        if target in ("maxtext", "deepspeed"):
            # Keys of a table in YAML, and constants that name keys of the JSON.
            for path in [*place.rglob("base.yml"), *place.rglob("constants.py"), *place.rglob("config.py")]:
                names.update({name: None for name in re.findall(r"^\s*\"?(\w+)\"?\s*:|= \"(\w+)\"", path.read_text(), re.M) for name in name if name})
        for model, keys in JOBS:
            gpus = "48" if "pp=3" in keys else "64"
            command = [options.binary, "export", model, "--to", target, "--gpus", gpus, "--seq", "8192", "--global-batch", "192" if gpus == "48" else "128"]
            lossy = "pp,cp,ep,etp,sp,zero,shard,schedule,recompute,offload,offload_optimizer,rank_order,stages,tp,group,slices"
            done = subprocess.run([*command, "--parallel", keys, "--beyond-stack", "--allow", lossy, "--format", "json"], capture_output=True, text=True)
            if done.returncode:
                wrong.append(f"{target} {model} {keys}: {done.stderr.strip()}")
                continue
            answer = json.loads(done.stdout)
            notes += len(answer["notes"])
            for name, values in READERS[target](answer["text"]):
                if name not in names:
                    wrong.append(f"{target} {model} {keys}: {package} has no {name}")
                elif names[name] and (unknown := [v for v in values if v not in names[name]]):
                    wrong.append(f"{target} {model} {keys}: {name} is none of {sorted(names[name])}: {unknown}")
    print("\n".join(sorted(set(wrong))) or f"{len(JOBS)} configurations for {len(PACKAGES)} frameworks, {notes} notes")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
