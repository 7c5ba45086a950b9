"""Models of transformers, exported by torch.export, and what meshwright makes of them.

    python3 tests/exported/export.py [MESHWRIGHT]

Each family is exported with random weights and imported: `meshwright models --check` compares the logits of the recorded graph with those
of the imported model, and this script those of the recorded graph with PyTorch's. With --fixtures, the small archives next to this file are
written instead; `cargo test` reads them without PyTorch.
"""

import gzip
import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import torch
import transformers
from torch import nn
from transformers import AutoModelForCausalLM

HERE = Path(__file__).parent
SIZES = dict(
    vocab_size=24,
    hidden_size=16,
    intermediate_size=20,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
)
GPT2 = dict(
    vocab_size=24, n_positions=16, n_embd=16, n_layer=2, n_head=4, n_inner=20, bos_token_id=None, eos_token_id=None,
    attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0,
)
NEOX = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}
LLAMA3 = dict(
    rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
    original_max_position_embeddings=16,
)
MIXTRAL = dict(SIZES, num_local_experts=4, num_experts_per_tok=2)
MOE = dict(SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12)
QWEN3_MOE = dict(MOE, head_dim=8, norm_topk_prob=True)
QWEN2_MOE = dict(MOE, shared_expert_intermediate_size=28)
# Name, class of the configuration, its values, and the implementation of attention. Graphs of names in `-decomposed` are of core ops alone.
# Experts are computed by products of groups, or of batches in names with `-batched`.
FAMILIES = [
    ("llama", "LlamaConfig", SIZES, "sdpa"),
    ("llama-eager", "LlamaConfig", dict(SIZES, tie_word_embeddings=True, attention_bias=True), "eager"),
    ("llama-decomposed", "LlamaConfig", SIZES, "sdpa"),
    ("llama-one-group", "LlamaConfig", dict(SIZES, num_key_value_heads=1), "sdpa"),
    ("llama-biased-decomposed", "LlamaConfig", dict(SIZES, tie_word_embeddings=True, attention_bias=True, mlp_bias=True), "sdpa"),
    ("llama3", "LlamaConfig", dict(SIZES, head_dim=8, rope_parameters=LLAMA3), "sdpa"),
    ("mistral", "MistralConfig", dict(SIZES, sliding_window=4), "sdpa"),
    ("mistral-long-window", "MistralConfig", dict(SIZES, sliding_window=32), "sdpa"),
    ("qwen2", "Qwen2Config", SIZES, "sdpa"),
    ("qwen3", "Qwen3Config", dict(SIZES, head_dim=8), "sdpa"),
    ("gemma2", "Gemma2Config", dict(SIZES, head_dim=4, sliding_window=4, query_pre_attn_scalar=4), "eager"),
    ("olmo2", "Olmo2Config", SIZES, "sdpa"),
    ("phi3", "Phi3Config", dict(SIZES, pad_token_id=0), "sdpa"),
    ("gpt_neox", "GPTNeoXConfig", dict(NEOX, num_attention_heads=2, rotary_pct=0.5, hidden_act="gelu"), "sdpa"),
    ("gpt_neox-whole-turn", "GPTNeoXConfig", dict(NEOX, rotary_pct=1.0, use_parallel_residual=False), "sdpa"),
    ("smollm3", "SmolLM3Config", dict(SIZES, num_hidden_layers=4, pad_token_id=0, no_rope_layer_interval=2), "sdpa"),
    ("gemma3-eager-decomposed", "Gemma3TextConfig", dict(SIZES, head_dim=8, sliding_window=4, query_pre_attn_scalar=8), "eager"),
    ("gpt2", "GPT2Config", GPT2, "sdpa"),
    ("gpt2-decomposed", "GPT2Config", GPT2, "eager"),
    ("mixtral", "MixtralConfig", MIXTRAL, "sdpa"),
    ("mixtral-decomposed", "MixtralConfig", MIXTRAL, "sdpa"),
    ("mixtral-batched-decomposed", "MixtralConfig", dict(MIXTRAL, num_local_experts=3, num_experts_per_tok=1), "eager"),
    ("qwen3_moe", "Qwen3MoeConfig", dict(QWEN3_MOE, num_hidden_layers=3, mlp_only_layers=[1]), "sdpa"),
    ("qwen3_moe-batched", "Qwen3MoeConfig", QWEN3_MOE, "sdpa"),
    ("qwen2_moe", "Qwen2MoeConfig", QWEN2_MOE, "sdpa"),
    ("qwen2_moe-batched", "Qwen2MoeConfig", QWEN2_MOE, "sdpa"),
    ("olmoe", "OlmoeConfig", dict(SIZES, num_experts=4, num_experts_per_tok=2), "sdpa"),
]
# Archives that `cargo test` reads.
FIXTURES = [
    "llama", "llama-eager", "llama-one-group", "llama-decomposed", "gpt_neox-whole-turn", "gpt2-decomposed", "mistral-long-window", "gemma2", "olmo2",
    "phi3", "gpt_neox", "gpt2", "mixtral", "mixtral-decomposed", "qwen3_moe-batched", "qwen2_moe",
]


class Own(nn.Module):
    """A decoder that no library has: one matrix for queries, keys and values, a mask that fills scores, and norms by hand."""

    def __init__(self, hidden=16, heads=4, vocabulary=24):
        super().__init__()
        self.heads = heads
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(32, hidden)
        part = dict(gain=(hidden,), joined=(3 * hidden, hidden), out=(hidden, hidden), up=(20, hidden), down=(hidden, 20))
        layer = lambda: nn.ParameterDict({name: nn.Parameter(0.3 * torch.randn(size)) for name, size in part.items()})
        self.layers = nn.ModuleList(Layer(layer(), heads) for _ in range(2))

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return x @ self.tokens.weight.t()


class Layer(nn.Module):
    def __init__(self, weights, heads):
        super().__init__()
        self.weights, self.heads = weights, heads

    def forward(self, x):
        weights = self.weights
        batch, length, hidden = x.shape
        normed = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weights["gain"]
        parts = nn.functional.linear(normed, weights["joined"]).chunk(3, -1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        scores = q @ k.transpose(-2, -1) / (hidden // self.heads) ** 0.5
        seen = torch.tril(torch.ones(length, length))
        shares = scores.masked_fill(seen == 0, float("-inf")).softmax(-1)
        x = x + nn.functional.linear((shares @ v).transpose(1, 2).reshape(batch, length, hidden), weights["out"])
        return x + nn.functional.linear(nn.functional.relu(nn.functional.linear(x, weights["up"])), weights["down"])


class Fourier(nn.Module):
    """A mixer that the language has no op for."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(24, 16)
        self.mixers = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.head = nn.Linear(16, 24)

    def forward(self, tokens):
        x = self.embed(tokens)
        for mixer in self.mixers:
            x = x + mixer(torch.fft.fft(x).real)
        return self.head(x)


REFUSED = {"fourier": (Fourier, "aten.fft_fft")}


def family(name, cls, values, attention):
    """A model of a family; all its numbers are random, gains and biases too."""
    torch.manual_seed(0)
    config = getattr(transformers, cls)(**values, use_cache=False)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    if "experts_per_tok" in str(list(values)):
        model.set_experts_implementation("batched_mm" if "-batched" in name else "grouped_mm")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in name or "ln_" in name else 0.0, 0.25)
    return config, model


def export(model, path):
    tokens = torch.randint(0, 24, (2, 12))
    dims = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    program = torch.export.export(model, (tokens,), dynamic_shapes=(dims,), strict=False)
    if Path(path).stem.endswith("-decomposed"):
        program = program.run_decompositions()
    torch.export.save(program, path)
    return program


def small(path, has_lines):
    """Rewrites an archive with what an import reads: types of inputs, paths of modules and, if wanted, lines of the source."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    graph = next(name for name in files if name.startswith(f"{path.stem}/models/"))
    program = json.loads(files[graph])
    module = program["graph_module"]
    program = dict(schema_version=program["schema_version"], torch_version=program["torch_version"], graph_module=module)
    module = program["graph_module"] = dict(graph=module["graph"], signature=module["signature"])
    shorten(module["graph"], has_lines)
    files[graph] = json.dumps(program, separators=(",", ":")).encode()
    kept = ("/models/", "/data/weights/", "/data/constants/", "/byteorder", "/archive_format", "/archive_version")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            if any(part in name for part in kept):
                if name.endswith("_config.json"):
                    tensors = json.loads(data)
                    for tensor in tensors["config"].values():
                        for key in ("device", "layout", "requires_grad"):
                            tensor["tensor_meta"].pop(key, None)
                    data = json.dumps(tensors, separators=(",", ":")).encode()
                archive.writestr(zipfile.ZipInfo(name), data)
    path.unlink()
    path.with_suffix(".pt2.gz").write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def shorten(graph, has_lines):
    inputs = {list(union.values())[0].get("name") for union in graph["inputs"] if "as_tensor" in union}
    graph["tensor_values"] = {name: meta for name, meta in graph["tensor_values"].items() if name in inputs}
    for meta in graph["tensor_values"].values():
        for key in ("device", "layout", "requires_grad"):
            meta.pop(key, None)
    graph["nodes"] = [node for node in graph["nodes"] if "_assert_tensor_metadata" not in node["target"]]
    for node in graph["nodes"]:
        metadata = node["metadata"]
        frames = [line.strip() for line in metadata.get("stack_trace", "").splitlines() if line.strip().startswith("File")]
        own = [frame.split('"')[1:] for frame in frames if "/torch/" not in frame]
        module = metadata.get("nn_module_stack", "").split(";")[-1].split(",")
        node["metadata"] = {"nn_module_stack": f",{module[1]}," if len(module) == 3 else ""}
        if own and has_lines:
            node["metadata"]["stack_trace"] = f'File "{os.path.basename(own[-1][0])}"{own[-1][1]}'
        for key in ("is_hop_single_tensor_return", "name"):
            node.pop(key, None)
        for argument in node["inputs"]:
            argument.pop("kind", None)
            if "as_graph" in argument["arg"]:
                shorten(argument["arg"]["as_graph"]["graph"], has_lines)
        node["inputs"] = [argument for argument in node["inputs"] if argument["name"] not in ("device", "pin_memory", "layout")]


def fixtures():
    for name, cls, values, attention in FAMILIES:
        if name in FIXTURES:
            config, model = family(name, cls, values, attention)
            export(model, HERE / f"{name}.pt2")
            small(HERE / f"{name}.pt2", False)
            keys = dict(config.to_dict(), torch_dtype=None)
            keys = {key: value for key, value in keys.items() if (value is not None or "token_id" in key) and key not in ("transformers_version", "dtype", "architectures")}
            (HERE / f"{name}.json").write_text(json.dumps(keys, indent=1) + "\n")
    for name, model in dict(own=Own, **{name: model for name, (model, _) in REFUSED.items()}).items():
        torch.manual_seed(0)
        export(model().eval(), HERE / f"{name}.pt2")
        small(HERE / f"{name}.pt2", True)


def recorded_is_pytorch(program, model):
    """The recorded graph has the logits of the model, on other sizes than those it was recorded with."""
    tokens = torch.randint(0, 24, (3, 9))
    with torch.no_grad():
        recorded, own = program.module()(tokens), model(tokens)
    recorded, own = (getattr(result, "logits", result) for result in (recorded, own))
    return (recorded - own).abs().max().item()


def compared(meshwright):
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        models = [(values[0], lambda values=values: family(*values)[1]) for values in FAMILIES]
        for name, model in models + [("own", lambda: Own().eval())]:
            path = Path(folder) / f"{name}.pt2"
            model = model()
            program = export(model, path)
            difference = recorded_is_pytorch(program, model)
            found = subprocess.run([meshwright, "models", "--check", path, "--format", "json"], capture_output=True, text=True)
            if found.returncode == 0:
                own = json.loads(found.stdout)["difference"]
                print(f"{name:20} recorded {difference:.1e}  imported {own:.1e}")
            failed += found.returncode != 0 or max(difference, own) > 1e-4
            print(found.stderr, end="")
        refused = [(name, lambda model=model: model().eval(), op) for name, (model, op) in REFUSED.items()]
        for name, model, op in refused:
            path = Path(folder) / f"{name}.pt2"
            export(model(), path)
            found = subprocess.run([meshwright, "models", "--check", path], capture_output=True, text=True)
            is_refused = found.returncode == 1 and "MW0308" in found.stderr and op in found.stderr
            print(f"{name:20} {'refused' if is_refused else 'NOT REFUSED'}: {found.stderr.splitlines()[0] if found.stderr else ''}")
            failed += not is_refused
    return failed


if __name__ == "__main__":
    if "--fixtures" in sys.argv[1:]:
        fixtures()
    else:
        binary = sys.argv[1] if len(sys.argv) > 1 else "target/release/meshwright"
        sys.exit(1 if compared(binary) else 0)
