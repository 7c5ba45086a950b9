"""Compares training on images with transformers on PyTorch: small models with an encoder, on several layouts.

A model of the real class gets random weights and is saved with examples as its processor would give them. `meshwright train` begins from
the saved weights and takes steps of gradient descent on all examples; losses, norms of gradients, and the exported weights after the
steps are compared with those of PyTorch.

    python3 tests/transformers/images.py --binary target/debug/meshwright
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    LlavaConfig,
    LlavaForConditionalGeneration,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLMoeConfig,
    Qwen3VLMoeForConditionalGeneration,
)

IMAGE, SEQ, PATCHES, STEPS, LR = 7, 24, 32, 4, 0.3
# One example is held out, and the others are one step.
EXAMPLES = 9
LAYOUTS = ["dp=1,mbs=8", "dp=2,mbs=2", "tp=2,mbs=4", "pp=2,mbs=2", "pp=3,mbs=2", "dp=2,zero=3,mbs=2", "tp=2,sp=true,mbs=4",
           "cp=2,mbs=4", "cp=2,cp_kind=ring,mbs=4", "dp=2,tp=2,pp=2,zero=1,mbs=2"]
NEAR = 1e-5
# Tensors of examples to which a class wants a dim of sequences.
OF_TOKENS = ["input_ids", "mm_token_type_ids"]

VISION = dict(model_type="pixtral", hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, patch_size=4,
              image_size=64, hidden_act="silu")
TEXT = dict(model_type="mistral", hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, vocab_size=96, sliding_window=None, tie_word_embeddings=False)


# A table of 4 x 4 positions for images of up to 6 x 4 patches, and two inner layers whose rows the text model adds.
QWEN_VISION = dict(depth=4, hidden_size=32, intermediate_size=48, num_heads=4, patch_size=4, spatial_merge_size=2, temporal_patch_size=2,
                   out_hidden_size=24, num_position_embeddings=16, deepstack_visual_indexes=[0, 2])
QWEN_TEXT = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                 vocab_size=96, tie_word_embeddings=False,
                 rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[2, 1, 1], mrope_interleaved=True))
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)


def models():
    """The name, the patches of a side of a row, the form of examples, the class, and the configuration."""
    whole = dict(vision_config=VISION, text_config=TEXT, image_token_index=IMAGE, tie_word_embeddings=False)
    yield "mistral3", 2, padded, Mistral3ForConditionalGeneration, Mistral3Config(**whole)
    whole.update(vision_feature_layer=-1, vision_feature_select_strategy="full", projector_hidden_act="gelu")
    yield "llava", 1, padded, LlavaForConditionalGeneration, LlavaConfig(**whole)
    whole = dict(vision_config=QWEN_VISION, image_token_id=IMAGE, tie_word_embeddings=False)
    yield "qwen3_vl", 2, in_patches, Qwen3VLForConditionalGeneration, Qwen3VLConfig(text_config=QWEN_TEXT, **whole)
    text = dict(QWEN_TEXT, **EXPERTS)
    yield "qwen3_vl_moe", 2, in_patches, Qwen3VLMoeForConditionalGeneration, Qwen3VLMoeConfig(text_config=text, **whole)


def padded(grids, merge, generator):
    """Images of these rows and columns of rows, padded to one size, as the processor of Pixtral gives them."""
    side = VISION["patch_size"] * merge
    height, width = (max(grid[at] for grid in grids) * side for at in (0, 1))
    pixels = torch.zeros(len(grids), 3, height, width)
    for image, (rows, columns) in zip(pixels, grids):
        image[:, : rows * side, : columns * side] = torch.randn(3, rows * side, columns * side, generator=generator)
    return dict(pixel_values=pixels, image_sizes=torch.tensor([[rows * side, columns * side] for rows, columns in grids]))


def in_patches(grids, merge, generator):
    """Patches of images, as the processor of Qwen gives them."""
    grid = torch.tensor([[1, rows * merge, columns * merge] for rows, columns in grids])
    numbers = 3 * QWEN_VISION["temporal_patch_size"] * QWEN_VISION["patch_size"] ** 2
    return dict(pixel_values=torch.randn(int(grid.prod(1).sum()), numbers, generator=generator), image_grid_thw=grid)


def examples(merge, form, generator):
    """Examples of one or two images of several sizes, whose rows stand among tokens."""
    for number in range(EXAMPLES):
        grids = [[(1, 2), (2, 2)], [(2, 3)], [(1, 1), (3, 1)]][number % 3]
        ids = [1]
        for rows, columns in grids:
            ids += [IMAGE] * (rows * columns) + torch.randint(8, 96, (2,), generator=generator).tolist()
        ids += torch.randint(8, 96, (SEQ - len(ids) - number % 4,), generator=generator).tolist()
        ids = torch.tensor(ids)
        example = dict(input_ids=ids, labels=torch.where(ids == IMAGE, -100, ids), **form(grids, merge, generator))
        if form == in_patches:
            example["mm_token_type_ids"] = (ids == IMAGE).int()
        yield example


def trained(model, examples):
    """Losses and norms of gradients of all steps."""
    losses, norms = [], []
    for _ in range(STEPS):
        model.zero_grad()
        total, count = 0.0, 0
        for example in examples:
            given = {name: tensor[None] if name in OF_TOKENS else tensor for name, tensor in example.items() if name != "labels"}
            logits = model(**given, use_cache=False).logits[0]
            labels = example["labels"][1:]
            total = total + torch.nn.functional.cross_entropy(logits[:-1], labels, ignore_index=-100, reduction="sum")
            count += (labels >= 0).sum()
        loss = total / count
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in model.parameters()])).item())
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= LR * parameter.grad
    return losses, norms


def run(*arguments):
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}\n{done.stdout}{done.stderr}")
    return done.stdout


def far(name, own, theirs):
    off = max(abs(a - b) / max(abs(b), 1e-3) for a, b in zip(own, theirs, strict=True))
    return [f"{name}: {own} are not {theirs}"] if off > NEAR else []


def compare(binary, folder, name, merge, form, kind, config):
    torch.manual_seed(sum(map(ord, name)))
    config._attn_implementation = "eager"
    model = kind(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    hub, data = os.path.join(folder, f"{name}-hub"), os.path.join(folder, f"{name}-data")
    model.save_pretrained(hub)
    os.makedirs(data)
    made = list(examples(merge, form, torch.Generator().manual_seed(5)))
    for number, example in enumerate(made):
        save_file(example, os.path.join(data, f"{number:03}.safetensors"))
    losses, norms = trained(model, made[:-1])
    wrong = []
    for number, layout in enumerate(LAYOUTS):
        out, weights = (os.path.join(folder, f"{name}-{number}{end}") for end in ("", "-weights"))
        run(binary, "train", f"{hub}+images={PATCHES}", "--data", data, "--init-from", hub, "--parallel", layout, "--out", out,
            "--seq", str(SEQ), "--global-batch", str(EXAMPLES - 1), "--steps", str(STEPS), "--save-every", str(STEPS), "--lr", str(LR),
            "--optimizer", "sgd", "--momentum", "0", "--weight-decay", "0", "--clip", "1e9", "--lr-schedule", "constant",
            "--warmup", "0", "--precision", "f32", "--valid-fraction", "0.1")
        with open(os.path.join(out, "metrics.jsonl")) as file:
            steps = [record for record in map(json.loads, file) if "grad_norm" in record]
        run(binary, "export-weights", out, "--out", weights)
        found = far(f"{name} {layout}: losses", [step["loss"] for step in steps], losses)
        found += far(f"{name} {layout}: norms", [step["grad_norm"] for step in steps], norms)
        again = kind.from_pretrained(weights)
        for (key, own), theirs in zip(again.named_parameters(), model.parameters(), strict=True):
            off = (own - theirs).abs().max().item() / max(theirs.abs().max().item(), 1e-3)
            found += [f"{name} {layout}: {key} is {off:.1e} off"] if off > 2 * NEAR else []
        print(f"{name} {layout}: {'as transformers' if not found else 'WRONG'}", flush=True)
        wrong += found
    return wrong


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--binary", required=True)
    arguments.add_argument("--only", help="the name of one model")
    arguments = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        chosen = [model for model in models() if arguments.only in (None, model[0])]
        wrong = [line for model in chosen for line in compare(arguments.binary, folder, *model)]
    print("\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
