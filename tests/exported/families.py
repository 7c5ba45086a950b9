"""Families of transformers and models of plain torch.nn, exported by torch.export, and what meshwright makes of them.

    python3 tests/exported/families.py [MESHWRIGHT]

Each model has small sizes and random weights. The table says whether it opens, or why not, and how far its logits are from those of the
recorded graph and from PyTorch's. Then the test `gradients_of_families` compares the gradients of all that open with PyTorch's. With
--fixtures, the small archives next to this file are written that `cargo test` reads without PyTorch.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import save
from torch import nn
from transformers import AutoModelForCausalLM

import export as exports

HERE = Path(__file__).parent
SIZES = dict(
    vocab_size=24, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=64, bos_token_id=None, eos_token_id=None, pad_token_id=None,
)
PADDED = dict(SIZES, pad_token_id=0)
NO_GROUPS = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}
EXPERTS = dict(num_experts_per_tok=2, moe_intermediate_size=12)
DEEPSEEK = dict(
    SIZES, num_key_value_heads=4, q_lora_rank=8, kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=6, n_routed_experts=4,
    n_group=2, topk_group=1, first_k_dense_replace=1, n_shared_experts=1, **EXPERTS,
)
GLM_MOE = dict(
    SIZES, head_dim=8, n_routed_experts=8, n_group=2, topk_group=1, first_k_dense_replace=1, n_shared_experts=1, **EXPERTS,
)
# Model type, and the values of its configuration.
DECODERS = {
    "llama": SIZES,
    "mistral": dict(SIZES, sliding_window=4),
    "mixtral": dict(SIZES, num_local_experts=4, num_experts_per_tok=2),
    "qwen2": SIZES,
    "qwen3": dict(SIZES, head_dim=8),
    "qwen2_moe": dict(SIZES, num_experts=4, shared_expert_intermediate_size=28, **EXPERTS),
    "qwen3_moe": dict(SIZES, head_dim=8, num_experts=4, norm_topk_prob=True, **EXPERTS),
    "deepseek_v2": dict(DEEPSEEK, topk_method="group_limited_greedy"),
    "deepseek_v3": DEEPSEEK,
    "dots1": dict(GLM_MOE, num_key_value_heads=2, sliding_window=None),
    "glm4_moe": GLM_MOE,
    "minimax_m2": dict(SIZES, head_dim=8, num_local_experts=4, num_experts_per_tok=2, rotary_dim=4),
    "afmoe": dict(SIZES, head_dim=8, num_experts=4, num_dense_layers=1, sliding_window=4, **EXPERTS),
    "exaone_moe": dict(SIZES, head_dim=8, num_experts=4, n_group=1, topk_group=1, num_shared_experts=1, sliding_window=4, **EXPERTS),
    "hy_v3": dict(SIZES, head_dim=8, num_experts=4, num_shared_experts=1, **EXPERTS),
    "solar_open": GLM_MOE,
    "glm": dict(PADDED, head_dim=8),
    "glm4": dict(PADDED, head_dim=8),
    "ernie4_5": dict(SIZES, head_dim=8),
    "ernie4_5_moe": dict(SIZES, moe_num_experts=4, moe_k=2, moe_intermediate_size=12, moe_num_shared_experts=1),
    "cohere": PADDED,
    "cohere2": dict(PADDED, head_dim=8, sliding_window=4),
    "olmo": SIZES,
    "olmo2": SIZES,
    "olmo3": dict(SIZES, sliding_window=4),
    "phimoe": dict(SIZES, num_local_experts=4, num_experts_per_tok=2),
    "mimo_v2_flash": dict(SIZES, head_dim=8, v_head_dim=6, n_routed_experts=4, swa_num_attention_heads=4, swa_num_key_value_heads=2,
        swa_head_dim=8, swa_v_head_dim=6, sliding_window=4, **EXPERTS),
    "apertus": SIZES,
    "starcoder2": dict(SIZES, sliding_window=4),
    "stablelm": dict(SIZES, partial_rotary_factor=0.5),
    "exaone4": dict(SIZES, head_dim=8, sliding_window=4),
    "arcee": SIZES,
    "gemma": dict(PADDED, head_dim=8),
    "gemma2": dict(PADDED, head_dim=4, sliding_window=4, query_pre_attn_scalar=4),
    "gemma3_text": dict(PADDED, head_dim=8, sliding_window=4, query_pre_attn_scalar=8),
    "phi": SIZES,
    "phi3": PADDED,
    "falcon": NO_GROUPS,
    "bloom": dict(vocab_size=24, hidden_size=16, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=None, pad_token_id=None),
    "opt": dict(NO_GROUPS, ffn_dim=20, word_embed_proj_dim=16, dropout=0.0, pad_token_id=1),
    "gpt_bigcode": dict(vocab_size=24, n_positions=16, n_embd=16, n_layer=2, n_head=4, n_inner=20, bos_token_id=None, eos_token_id=None,
        attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0),
    "nemotron": dict(SIZES, head_dim=8),
    "granite": dict(SIZES, embedding_multiplier=3.0, residual_multiplier=0.5, attention_multiplier=0.3, logits_scaling=2.0),
    "granitemoe": dict(SIZES, num_local_experts=4, num_experts_per_tok=2, embedding_multiplier=3.0, residual_multiplier=0.5),
    "gpt2": dict(vocab_size=24, n_positions=16, n_embd=16, n_layer=2, n_head=4, n_inner=20, bos_token_id=None, eos_token_id=None,
        attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0),
    "gpt_neox": dict(NO_GROUPS, rotary_pct=0.5),
    "gptj": dict(vocab_size=24, n_positions=16, n_embd=16, n_layer=2, n_head=2, n_inner=20, rotary_dim=4, bos_token_id=None, eos_token_id=None,
        attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0),
    "smollm3": dict(PADDED, num_hidden_layers=4, no_rope_layer_interval=2),
    "gpt_oss": dict(SIZES, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=4),
    "olmoe": dict(SIZES, num_experts=4, num_experts_per_tok=2),
    "seed_oss": dict(SIZES, head_dim=8),
    "gpt_neo": dict(vocab_size=24, hidden_size=16, num_layers=2, attention_types=[[["global", "local"], 1]], num_heads=4, intermediate_size=20,
        max_position_embeddings=64, window_size=4, bos_token_id=None, eos_token_id=None),
    "codegen": dict(vocab_size=24, n_positions=16, n_ctx=16, n_embd=16, n_layer=2, n_head=4, n_inner=20, rotary_dim=4, bos_token_id=None, eos_token_id=None,
        attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0),
    "persimmon": NO_GROUPS,
    "mpt": dict(vocab_size=24, d_model=16, n_heads=4, n_layers=2, expansion_ratio=2, max_seq_len=64),
    "llama4_text": dict(SIZES, head_dim=8, intermediate_size_mlp=20, num_local_experts=4, num_experts_per_tok=1, attention_chunk_size=4),
    "hunyuan_v1_dense": dict(SIZES, head_dim=8),
    "bitnet": SIZES,
}
# What has no meaning in the language yet, and the words of the message that says so.
REFUSED = {"phimoe": "`aten.clamp.Tensor` with an argument", "llama4_text": "activations are made integers"}
AUTO = torch.export.Dim.AUTO
TOKENS = {0: AUTO, 1: AUTO}


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12,16), nn.ReLU(), nn.Linear(16,16), nn.GELU(), nn.Linear(16,5))
    def forward(self, x): return self.net(x)


class ViT(nn.Module):
    def __init__(self, hidden=16, heads=2, classes=5):
        super().__init__()
        self.patches = nn.Conv2d(3, hidden, 4, stride=4)
        self.cls = nn.Parameter(torch.randn(1,1,hidden))
        self.positions = nn.Parameter(torch.randn(1,5,hidden))
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(hidden, heads, 20, 0.0, activation="gelu", batch_first=True, norm_first=True) for _ in range(2))
        self.norm = nn.LayerNorm(hidden); self.head = nn.Linear(hidden, classes)
    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1,2)
        x = torch.cat([self.cls.expand(x.shape[0],-1,-1), x], 1) + self.positions
        for b in self.blocks: x = b(x)
        return self.head(self.norm(x)[:,0])


class EncDec(nn.Module):
    def __init__(self, hidden=16, vocab=24):
        super().__init__()
        self.source = nn.Embedding(vocab, hidden); self.target = nn.Embedding(vocab, hidden)
        enc = nn.TransformerEncoderLayer(hidden, 2, 20, 0.0, batch_first=True); dec = nn.TransformerDecoderLayer(hidden, 2, 20, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(enc, 2, enable_nested_tensor=False); self.decoder = nn.TransformerDecoder(dec, 2)
        self.head = nn.Linear(hidden, vocab)
    def forward(self, source, target):
        memory = self.encoder(self.source(source))
        n = target.shape[1]
        mask = torch.triu(torch.full((n, n), float("-inf")), diagonal=1)
        return self.head(self.decoder(self.target(target), memory, tgt_mask=mask, tgt_is_causal=True))


class Shared(nn.Module):
    """One layer, called several times, and residual sums outside of modules."""
    def __init__(self, hidden=16, vocab=24, times=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList([nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, 20), nn.SiLU(), nn.Linear(20, hidden))])
        self.times = times; self.head = nn.Linear(hidden, vocab)
    def forward(self, tokens):
        x = self.embed(tokens)
        for _ in range(self.times): x = x + self.layers[0](x)
        return self.head(x)


class Outside(nn.Module):
    def __init__(self, hidden=16, vocab=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(hidden, 20), nn.Tanh(), nn.Linear(20, hidden)) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(3))
        self.head = nn.Linear(hidden, vocab)
    def forward(self, tokens):
        x = self.embed(tokens)
        for norm, layer in zip(self.norms, self.layers): x = x + layer(norm(x))
        return self.head(x)


class Convolutions(nn.Module):
    def __init__(self, hidden=16, vocab=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.mixers = nn.ModuleList(nn.Conv1d(hidden, hidden, 1) for _ in range(2)); self.head = nn.Linear(hidden, vocab)
    def forward(self, tokens):
        x = self.embed(tokens)
        for m in self.mixers: x = x + m(x.transpose(1,2)).transpose(1,2)
        return self.head(x)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.Sequential(nn.Conv2d(3,8,3,padding=1), nn.ReLU(), nn.Conv2d(8,8,3,stride=2,padding=1,groups=4), nn.ReLU())
        self.head = nn.Linear(8*4*4, 5)
    def forward(self, images): return self.head(self.convs(images).flatten(1))


class Recurrent(exports.Fourier):
    """Layers with a state."""

    def __init__(self):
        super().__init__()
        self.mixers = nn.ModuleList(nn.GRU(16, 16, batch_first=True) for _ in range(2))

    def forward(self, tokens):
        x = self.embed(tokens)
        for mixer in self.mixers:
            x = x + mixer(x)[0]
        return self.head(x)


def tokens(count=12):
    return torch.randint(0, 24, (2, count))


# Class, inputs, and which of their sizes are open.
PLAIN = {
    "mlp": (MLP, lambda: (torch.randn(2, 12),), ({0: AUTO},)),
    "vit": (ViT, lambda: (torch.randn(2, 3, 8, 8),), ({0: AUTO},)),
    "encoder-decoder": (EncDec, lambda: (tokens(), tokens(9)), (TOKENS, TOKENS)),
    "shared": (Shared, lambda: (tokens(),), (TOKENS,)),
    "outside": (Outside, lambda: (tokens(),), (TOKENS,)),
    "convolutions": (Convolutions, lambda: (tokens(),), (TOKENS,)),
    "images": (Images, lambda: (torch.randn(2, 3, 8, 8),), ({0: AUTO},)),
}
# Archives that `cargo test` reads; those of the second list have gradients next to them.
FIXTURES = ["bloom", "gpt_oss", "shared", "outside", "convolutions"]
WITH_GRADIENTS = ["glm", "deepseek_v3", "apertus", "mlp", "vit", "encoder-decoder"]


def made(name):
    """A model and the inputs and open sizes of its export."""
    torch.manual_seed(0)
    if name in PLAIN:
        kind, inputs, dims = PLAIN[name]
        model = kind().eval()
        randomise(model)
        return model, inputs(), dims
    config = transformers.CONFIG_MAPPING[name](**DECODERS[name], use_cache=False)
    try:
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    except ValueError:
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    randomise(model)
    # The experts of Llama 4 are one product in any case.
    if name != "llama4_text" and ("experts_per_tok" in str(list(DECODERS[name])) or "moe_k" in DECODERS[name]):
        model.set_experts_implementation("grouped_mm")
    return model, (tokens(),), (TOKENS,)


def randomise(model):
    """Numbers that archives store in few bytes, for gains, biases and corrections of routers too."""
    corrections = [(name, buffer) for name, buffer in model.named_buffers() if "correction_bias" in name]
    with torch.no_grad():
        for name, tensor in list(model.named_parameters()) + corrections:
            tensor.normal_(1.0 if "norm" in name or "ln_" in name else 0.0, 0.25)
            tensor.copy_((tensor * 64).round() / 64)


def logits_of(result):
    return getattr(result, "logits", result)


def gradients(model, dims, digits=None):
    """The file of a step: inputs, labels and the gradients of all parameters, rounded to parts of the largest if `digits` are given."""
    torch.manual_seed(1)
    # Sequences of one length: the batch of a run has one.
    sizes = [tuple(size.shape) for size in dims["inputs"]]
    inputs = [torch.randint(0, 24, (4, 8)) if not one.is_floating_point() else torch.randn(4, *size[1:]) for one, size in zip(dims["inputs"], sizes)]
    logits = logits_of(model(*inputs)).float()
    labels = torch.randint(0, logits.shape[-1], logits.shape[:-1])
    model.zero_grad()
    nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten()).backward()
    file = {f"input.{at}": (one if one.is_floating_point() else one.int()).contiguous() for at, one in enumerate(inputs)}
    file["labels"] = labels.int()
    for name, parameter in model.named_parameters():
        grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        if digits:
            unit = grad.abs().max().clamp(min=1e-20) / digits
            grad = (grad / unit).round() * unit
        file[f"gradient.{name}"] = grad.contiguous()
    return save(file)


def exported(name, path):
    """The model, its inputs, and how far the recorded graph is from it."""
    model, inputs, dims = made(name)
    program = torch.export.export(model, inputs, dynamic_shapes=dims, strict=False)
    torch.export.save(program, path)
    with torch.no_grad():
        apart = (logits_of(program.module()(*inputs)) - logits_of(model(*inputs))).abs().max().item()
    return model, inputs, apart


def fixtures():
    import gzip

    for name in FIXTURES + WITH_GRADIENTS:
        path = HERE / f"{name}.pt2"
        model, inputs, _ = exported(name, path)
        exports.small(path, False)
        if name in WITH_GRADIENTS:
            data = gradients(model, {"inputs": inputs}, 128)
            (HERE / f"{name}.gradients.gz").write_bytes(gzip.compress(data, mtime=0))
    torch.manual_seed(0)
    exports.export(Recurrent().eval(), HERE / "recurrent.pt2")
    exports.small(HERE / "recurrent.pt2", True)


def compared(meshwright, names):
    failed, opened = [], 0
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'MODEL':18} {'RECORDED':>9} {'IMPORTED':>9}")
        for name in names:
            path = Path(folder) / f"{name}.pt2"
            model, inputs, apart = exported(name, path)
            found = subprocess.run([meshwright, "models", "--check", path, "--format", "json"], capture_output=True, text=True)
            if found.returncode == 0:
                own = json.loads(found.stdout)["difference"]
                print(f"{name:18} {apart:9.1e} {own:9.1e}", flush=True)
                path.with_suffix(".gradients").write_bytes(gradients(model, {"inputs": inputs}))
                opened += 1
                failed += [name] if max(apart, own) > 1e-4 or name in REFUSED else []
                continue
            print(f"{name:18} {apart:9.1e}   refused: {found.stderr.splitlines()[0]}", flush=True)
            path.unlink()
            failed += [] if name in REFUSED and REFUSED[name] in found.stderr else [name]
        print(f"{opened} of {len(names)} open")
        test = ["cargo", "test", "--locked", "--test", "command_line", "--", "--ignored", "--nocapture", "gradients_of_families"]
        run = subprocess.run(test, env=dict(os.environ, MESHWRIGHT_EXPORTS=folder))
        failed += ["gradients"] if run.returncode else []
    print("differ: " + ", ".join(failed) if failed else "all as expected")
    return 1 if failed else 0


if __name__ == "__main__":
    if "--fixtures" in sys.argv[1:]:
        fixtures()
    else:
        binary = sys.argv[1] if len(sys.argv) > 1 else "target/release/meshwright"
        sys.exit(compared(binary, sys.argv[2:] or list(DECODERS) + list(PLAIN)))
