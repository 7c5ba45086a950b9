"""Fine-tunes a small Llama of transformers on examples with `meshwright train`, and compares each step with PyTorch.

Each example goes through the class by itself, with its own labels, in which -100 marks what does not count. A step has all examples, so that its loss
is the mean over their labels, however they are packed.
"""

import json
import os
import random
import subprocess
import sys
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import chat
import train

SEQ, STEPS, LR = 48, 4, 0.05
LAYOUTS = ["dp=1", "dp=2,tp=2", "cp=2,cp_kind=ring", "pp=2,mbs=1"]
TOLERANCE = 2e-5


def examples(count):
    """Lines of tokens, of which the labels of some count; one is longer than a window, and one has no label that does."""
    draw = random.Random(3)
    lines = []
    for number in range(count):
        length = 61 if number == 4 else draw.randrange(3, SEQ + 2)
        ids = [draw.randrange(340) for _ in range(length)]
        labels = [token if draw.random() < 0.4 else -100 for token in ids]
        labels[1] = ids[1]
        # A label need not be the token itself.
        labels[2] = draw.randrange(340) if number % 3 == 0 else -100
        lines.append(dict(input_ids=ids, labels=[-100] * length if number == 9 else labels))
    return lines


def losses(model, lines):
    """The loss and the norm of the gradient of each step, and the loss after the last."""
    figures = []
    for step in range(STEPS + 1):
        whole, count = 0.0, 0
        for line in lines:
            ids, labels = [torch.tensor([line[name][: SEQ + 1]]) for name in ("input_ids", "labels")]
            counted = int((labels[:, 1:] != -100).sum())
            if counted:
                whole = whole + model(input_ids=ids, labels=labels).loss * counted
                count += counted
        loss = whole / count
        model.zero_grad()
        loss.backward()
        norm = torch.sqrt(sum((p.grad**2).sum() for p in model.parameters())).item()
        figures.append((loss.item(), norm))
        with torch.no_grad():
            for p in model.parameters():
                p -= LR * p.grad
    return figures


def command(binary, *args):
    told = subprocess.run([binary, *args], capture_output=True, text=True)
    if told.returncode:
        sys.exit(told.stderr)
    return json.loads(told.stdout)


def check(binary):
    """What is wrong."""
    lines, wrong = examples(24), []
    model = train.model_of("llama", dict(SMALL), 5)
    assert isinstance(model, LlamaForCausalLM) and isinstance(model.config, LlamaConfig)
    with tempfile.TemporaryDirectory() as folder:
        hub, data = os.path.join(folder, "hub"), os.path.join(folder, "data")
        model.save_pretrained(hub)
        with open(os.path.join(folder, "lines.jsonl"), "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        told = command(binary, "tokenize", file.name, "--tokenizer", chat.TOKENIZER, "--out", data, "--format", "json")
        assert told["counted"] == sum(label >= 0 for line in lines for label in line["labels"])
        figures = losses(model, lines)
        common = f"train --init-from {hub} --data {data} --valid {data} --seq {SEQ} --optimizer sgd --weight-decay 0 --clip 0 --warmup 0"
        common += f" --lr {LR} --lr-schedule constant --eval-every 0 --final-eval-batches 0 --format json"
        first = command(binary, *common.split(), "--steps", "1", "--global-batch", "1", "--out", os.path.join(folder, "first"))
        counts = first["examples"]["train"]
        assert (counts["examples"], counts["cut"], counts["without_label"]) == (23, 1, 1), counts
        for number, layout in enumerate(LAYOUTS):
            out = os.path.join(folder, f"out{number}")
            batch = 2 * counts["windows"]
            args = [*common.split(), "--steps", str(STEPS), "--global-batch", str(batch), "--parallel", layout, "--out", out]
            report = command(binary, *args)
            with open(os.path.join(out, "metrics.jsonl")) as file:
                steps = [record for record in map(json.loads, file) if "grad_norm" in record]
            found = [(record["loss"], record["grad_norm"]) for record in steps] + [(report["valid_loss"], None)]
            for step, (own, theirs) in enumerate(zip(found, figures)):
                for name, number, wanted in zip(("loss", "norm"), own, theirs):
                    if number is not None and not abs(number - wanted) <= TOLERANCE * abs(wanted):
                        wrong.append(f"fine-tuning on {layout}: the {name} of step {step + 1} is {number}, not {wanted}")
            if any(record["counted_tokens"] != 2 * counts["counted"] for record in steps):
                wrong.append(f"fine-tuning on {layout}: the steps do not count each label twice")
    return wrong


SMALL = dict(
    vocab_size=340, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=64, tie_word_embeddings=False,
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    differences = check(os.path.join(os.path.dirname(__file__), "..", "..", "target", "debug", "meshwright"))
    print("\n".join(differences) or "equal")
    sys.exit(1 if differences else 0)
