"""Compares losses, gradients and updates with those of transformers on PyTorch, family by family and layout by layout.

Small models of the real classes get random weights and train twenty steps, in f32 and again in bf16 with f32 copies of the
weights. The classes save them; tokens and results go next to them, and the test `tests/transformers.rs` reads the saved weights
and runs the same on ten layouts each. It exports its weights before and after the steps, and the classes load these: they must be
the same to the bit, and have the same losses. The table of keys is held against the real classes, too. Nothing is downloaded.

    python3 -m pip install -r tests/transformers/requirements.txt
    python3 tests/transformers/compare.py
"""

import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, logging

import cases
import exports
import further
import table

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SEQUENCES, SEQ, STEPS, LR = 8, 16, 20, 3e-3
# Weights are compared after so many steps: later, rounding in another order shows.
COMPARED = 3
# Changes of weights that are larger than rounding, relative, how often they are drawn, the most by which they may change a loss, and the
# models tried.
NOISE, DRAWS, STEADY, ATTEMPTS = 1e-6, 4, 2e-5, 8
# A larger eps than in practice: else a gradient that is 0 but for rounding moves its parameter by a whole step.
ADAMW = dict(name="adamw", beta1=0.9, beta2=0.95, eps=1e-5, weight_decay=0.1, clip=1.0)


def model_of(name, family, options, attempt):
    torch.manual_seed(sum(map(ord, name)) + 1000 * attempt)
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[family](**copy.deepcopy(options)))
    if "num_mtp_layers" in options:
        further.attach(model, options["num_mtp_layers"])
    for key, parameter in model.named_parameters():
        # Gains about 1, the rest about 0; large enough that every part of a layer counts. Gemma adds the 1 itself.
        mean = 1.0 if not family.startswith("gemma") and parameter.dim() == 1 and "norm" in key + ("norm" if "ln_" in key else "") and "bias" not in key else 0.0
        torch.nn.init.normal_(parameter, mean=mean, std=0.2)
    with torch.no_grad():
        for key, buffer in model.named_buffers():
            if key.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn_like(buffer) * 0.2)
        if name.endswith(("far-router", "far-gate")):
            far(model)
    return model.eval()


def far(model):
    """Logits of routers, and of the gate of a shared expert, lie below -88, where the exponential of f32 ends."""
    model.model.embed_tokens.weight.abs_().mul_(8.0)
    for layer in model.model.layers:
        layer.post_attention_layernorm.weight.fill_(1.0)
        for part in ("gate", "shared_expert_gate"):
            gate = getattr(layer.mlp, part, None)
            if gate is not None and (part == "shared_expert_gate" or not hasattr(layer.mlp, "shared_expert_gate")):
                gate.weight.mul_(0.1).sub_(5.5)


def trained(model, precision=torch.float32):
    """Losses and norms of all steps, gradients of the first, weights after the compared ones, and the tokens.

    Below f32, the model has rounded weights, and the optimizer updates f32 copies of them.
    """
    copies = {p: p.detach().clone().requires_grad_() for p in model.parameters()}
    for parameter in model.parameters():
        parameter.data = parameter.data.to(precision)
    # Biases of experts have two dims.
    vectors = [copies[p] for key, p in model.named_parameters() if p.dim() < 2 or key.endswith("bias")]
    matrices = [copies[p] for key, p in model.named_parameters() if p.dim() > 1 and not key.endswith("bias")]
    groups = [dict(params=matrices, weight_decay=ADAMW["weight_decay"]), dict(params=vectors, weight_decay=0.0)]
    betas = (ADAMW["beta1"], ADAMW["beta2"])
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=betas, eps=ADAMW["eps"])
    generator = torch.Generator().manual_seed(1)
    losses, norms, first, after, tokens = [], [], {}, {}, {}
    for step in range(STEPS + 1):
        ids = torch.randint(0, model.config.vocab_size, (SEQUENCES, SEQ + 1), generator=generator)
        inputs, labels = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
        # Samples differ in how many labels count.
        for row in range(SEQUENCES):
            labels[row, : row % 4] = -1
        tokens[f"tok.{step}"], tokens[f"lab.{step}"] = inputs.int(), labels.int()
        depth = model.further.num_mtp_layers if hasattr(model, "further") else 0
        ahead = further.inputs(inputs, labels, depth)
        tokens.update({f"{key}.{step}": numbers.int() for key, numbers in ahead.items()})
        if step == STEPS:
            # Those with which exported weights are compared.
            break
        hidden = model.base_model(input_ids=inputs, use_cache=False).last_hidden_state if depth else None
        logits = model(input_ids=inputs, use_cache=False).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten().long(), ignore_index=-1)
        model.zero_grad()
        (loss + further.loss(model, hidden, ahead) / (labels >= 0).sum() if depth else loss).backward()
        for p, copy in copies.items():
            copy.grad = None if p.grad is None else p.grad.float()
        if step == 0:
            first = {key: torch.zeros_like(p) if p.grad is None else p.grad.clone() for key, p in named(model) if p.requires_grad}
        norms.append(torch.nn.utils.clip_grad_norm_(copies.values(), ADAMW["clip"]).item())
        losses.append(loss.item())
        optimizer.step()
        with torch.no_grad():
            for p, copy in copies.items():
                p.copy_(copy)
        if step + 1 == COMPARED:
            after = snapshot(model)
    return losses, norms, first, after, tokens


def steady(name, family, options):
    """The first random model whose losses do not hang on rounding, and what it trains to in f32.

    Where two experts have nearly the same score, the last place of a sum decides which one gets a token.
    """
    for attempt in range(ATTEMPTS):
        model = model_of(name, family, options, attempt)
        results = trained(copy.deepcopy(model))
        near = [trained(shaken(model))[0] for _ in range(DRAWS)]
        if all(abs(loss - other) <= STEADY * loss for others in near for loss, other in zip(results[0], others)):
            return model, results
    sys.exit(f"{name}: of {ATTEMPTS} models, none has losses that do not hang on rounding")


def shaken(model):
    """A copy of a model, each of whose weights is off by about `NOISE`."""
    near = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in near.parameters():
            parameter.mul_(1 + NOISE * torch.randn_like(parameter))
    return near


def snapshot(model):
    return {key: tensor.detach().clone() for key, tensor in named(model)}


def named(model):
    """Parameters and buffers under the names of files."""
    layers = getattr(model.config, "num_hidden_layers", 0)
    return [(further.name(key, layers), tensor) for key, tensor in [*model.named_parameters(), *model.named_buffers()]]


def write(folder, name, family, options):
    model, (losses, norms, gradients, after, tokens) = steady(name, family, options)
    # One run may meet no tie of a router that rounding decides, and another the next.
    losses_bf16 = [trained(near, torch.bfloat16)[0] for near in [copy.deepcopy(model), *(shaken(model) for _ in range(DRAWS))]]
    tensors = dict(tokens)
    for kind, of in [("after", after), ("gradient", gradients)]:
        tensors.update({f"{kind}/{key}": tensor for key, tensor in of.items()})
    layouts = cases.EXPERTS if any(".experts." in key for key in after) else cases.DENSE
    record = dict(sequences=SEQUENCES, seq=SEQ, steps=STEPS, compared=COMPARED, lr=LR, optimizer=ADAMW, configs=layouts)
    record.update(losses=losses, norms=norms, losses_bf16=losses_bf16)
    for suffix, config in configs(name, model.config):
        path = os.path.join(folder, name + suffix)
        os.makedirs(path)
        with open(os.path.join(path, "config.json"), "w") as file:
            json.dump(config, file)
        with open(os.path.join(path, "case.json"), "w") as file:
            json.dump(record, file)
        for kind, dtype in [("hub", torch.float32), ("hub-bf16", torch.bfloat16), ("hub-f16", torch.float16)]:
            # Small files, so that most models have several.
            saved = copy.deepcopy(model).to(dtype)
            save(saved, os.path.join(path, kind), "20KB" if dtype == torch.float32 else "1GB")
            with open(os.path.join(path, kind, "config.json"), "w") as file:
                json.dump(dict(config, dtype=str(dtype).removeprefix("torch.")), file)
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, os.path.join(path, "tensors.safetensors"))


def save(model, folder, shard):
    """Saves a model as its class does, and its further layers as published files have them."""
    extra = {}
    if hasattr(model, "further"):
        layers = model.config.num_hidden_layers
        own = [*model.named_parameters(), *model.named_buffers()]
        extra = {further.name(key, layers): tensor.contiguous() for key, tensor in own if key.startswith("further.layers.")}
        del model.further
        shard = "1GB"
    model.save_pretrained(folder, max_shard_size=shard)
    if extra:
        file = os.path.join(folder, "model.safetensors")
        save_file({**load_file(file), **extra}, file)


def configs(name, config):
    """The files that say the same: as the class writes it, with keys left to their defaults, and as older versions did."""
    saved = json.loads(config.to_json_string())
    if "further" not in name and "num_nextn_predict_layers" in saved:
        # The class computes none of the layers that it counts.
        saved["num_nextn_predict_layers"] = 0
    # Where ranks share a sequence, each deals out its own tokens; nothing is dropped, so that it does not matter.
    grouped = dict(saved, routing_group=SEQ // 4) if "num_experts_per_tok" in saved else saved
    yield "", grouped
    if name in cases.DEFAULTED:
        yield "-defaults", {key: value for key, value in saved.items() if key not in cases.DEFAULTED[name]}
    if name in cases.OLDER:
        rope = dict(grouped["rope_parameters"])
        older = dict(grouped, rope_theta=rope.pop("rope_theta"), rope_scaling=None)
        del older["rope_parameters"]
        if rope["rope_type"] != "default":
            older["rope_scaling"] = dict(rope, type=rope.pop("rope_type"))
        yield "-older", older


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--binary", default=os.path.join(ROOT, "target", "debug", "meshwright"))
    arguments.add_argument("--only", default="", help="cases whose name has this in it")
    arguments.add_argument("--keep", help="write the cases into this folder, and leave them there")
    options = arguments.parse_args()
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    chosen = [case for case in cases.CASES if options.only in case[0]]
    wrong = table.check(options.binary, cases.CASES)
    for line in wrong:
        print(f"table: {line}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or scratch
        for name, family, given in chosen:
            write(folder, name, family, given)
        print(f"{len(os.listdir(folder))} cases written", flush=True)
        command = ["cargo", "test", "--locked", "--test", "transformers", "--", "--ignored", "--nocapture"]
        run = subprocess.run(command, cwd=ROOT, env=dict(os.environ, MESHWRIGHT_TRANSFORMERS=folder))
        wrong = wrong + exports.check(folder)
    sys.exit(1 if wrong or run.returncode else 0)


if __name__ == "__main__":
    main()
