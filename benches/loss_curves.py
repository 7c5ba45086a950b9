"""Trains small models in every precision, on one device and on eight, and draws their losses: docs/book/src/loss-curves.svg. With `--layouts` it trains them
in f32 by every technique: docs/book/src/layout-curves.svg. With `--seeds` it trains them in f32 and bf16 by several seeds, and prints how far means lie apart.

    cargo build --release --features full
    python3 benches/loss_curves.py
    python3 benches/loss_curves.py --layouts
    python3 benches/loss_curves.py --seeds 8

Nothing but Python's standard library is needed. Runs that are there are not repeated; `--out` has them.
"""

import argparse
import json
import os
import statistics
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODELS = {"tiny-llama": "tiny-llama, dense", "tiny-moe": "tiny-moe, 2 of 8 experts"}
CONFIGS = {"dp=1": "one device", "dp=2,tp=2,pp=2": "dp=2, tp=2, pp=2"}
PRECISIONS = {
    "f32": "#222222",
    "bf16": "#d1495b",
    "f16": "#2a6f97",
    "fp8-block": "#edae49",
    "fp8-tensor": "#588157",
    "fp8-delayed": "#8e6fb0",
}
# Twelve layouts that use every technique; those of experts have ranks for them.
LAYOUTS = {
    "tiny-llama": [
        "dp=1",
        "dp=8,zero=1",
        "dp=8,zero=3,shard=4",
        "dp=2,tp=4,sp=true",
        "tp=8,sp=true,zero=2",
        "dp=2,cp=4,cp_kind=ring,zero=2,shard=4",
        "cp=2,tp=2,dp=2,cp_kind=ulysses",
        "cp=8,cp_kind=allgather",
        "pp=2,dp=4,schedule=interleaved-1f1b,zero=1",
        "pp=2,tp=2,cp=2,cp_kind=ring,schedule=zb-v,zero=1",
        "pp=4,tp=2,schedule=zb-h1,recompute=full,offload=true",
        "pp=2,dp=4,schedule=seq1f1b,zero=3",
    ],
    "tiny-moe": [
        "dp=1",
        "dp=8,ep=8,zero=1",
        "dp=8,ep=4,zero=3,shard=4",
        "dp=2,tp=4,sp=true,ep=4,etp=2",
        "tp=4,dp=2,ep=8,sp=true",
        "dp=2,cp=4,cp_kind=ring,ep=4,zero=2",
        "cp=2,tp=2,dp=2,cp_kind=ulysses,ep=2",
        "cp=4,dp=2,ep=8,cp_kind=allgather,zero=1",
        "pp=4,dp=2,ep=2,mbs=1,schedule=1f1b",
        "pp=2,tp=2,cp=2,ep=2,cp_kind=ring,schedule=zb-v",
        "pp=2,dp=4,ep=4,schedule=zb-h1,recompute=selective:moe,offload=true",
        "pp=2,tp=4,ep=2,schedule=v-half,recompute=full",
    ],
}
COLORS = ["#222222", "#d1495b", "#2a6f97", "#edae49", "#588157", "#8e6fb0", "#e07a5f", "#3d8b8b", "#9a6324", "#c05299", "#7a7a7a", "#1b9e57"]
SMOOTH = 10
WIDTH, HEIGHT, LEFT, TOP = 400, 230, 52, 40
# More curves than these have their labels beneath the panel, and a strip of their differences, with its margins so high.
FEW, APART = 6, 120


def losses(options, model, config, precision, seed=1):
    """Loss of each step, and the validation loss at the end."""
    out = os.path.join(options.out, f"{model}-{precision}-{config}-seed-{seed}")
    metrics = os.path.join(out, "metrics.jsonl")
    if not os.path.exists(os.path.join(out, "done")):
        command = [options.binary, "train", model, "--data", options.data, "--precision", precision, "--parallel", config]
        command += ["--steps", str(options.steps), "--seq", str(options.seq), "--global-batch", "8", "--seed", str(seed), "--eval-every", "0"]
        subprocess.run([*command, "--final-eval-batches", "16", "--out", out], check=True)
        open(os.path.join(out, "done"), "w").close()
    with open(metrics) as file:
        lines = [json.loads(line) for line in file]
    steps = [line["loss"] for line in lines if "loss" in line]
    return steps, [line["valid_loss"] for line in lines if "valid_loss" in line][-1]


def smooth(numbers):
    """Means over a few steps, so that curves can be told apart."""
    return [sum(numbers[max(0, i - SMOOTH + 1) : i + 1]) / min(i + 1, SMOOTH) for i in range(len(numbers))]


def panel(title, curves, box, scale, colors):
    """The curves of a model: `curves` has steps and validation loss by precision, or by layout."""
    (x0, y0, tall), (low, high) = box, scale
    steps = max(len(numbers) for numbers, _ in curves.values())
    x = lambda i: x0 + i / (steps - 1) * WIDTH
    y = lambda loss: y0 + (high - loss) / (high - low) * tall
    parts = [f'<text x="{x0}" y="{y0 - 10}" font-weight="bold">{title}</text>']
    for tick in range(int(low) + 1, int(high) + 1):
        parts.append(f'<path d="M{x0} {y(tick):.1f}h{WIDTH}" stroke="#ddd"/>')
        parts.append(f'<text x="{x0 - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick}</text>')
    for tick in range(0, steps + 1, 100):
        parts.append(f'<text x="{x(max(tick - 1, 0)):.1f}" y="{y0 + tall + 18}" text-anchor="middle">{tick}</text>')
    beneath = len(curves) > FEW
    for row, (name, (numbers, valid)) in enumerate(curves.items()):
        parts.append(line(smooth(numbers), x, y, colors[name]))
        end = f"{name}: {valid:.4f}" if beneath else f"{name}: validation loss {valid:.3f}"
        at = f'x="{x0}" y="{y0 + tall + APART + 44 + 14 * row}" font-size="10"'
        if not beneath:
            at = f'x="{x0 + WIDTH - 6}" y="{y0 + 16 + 16 * row}" text-anchor="end"'
        parts.append(f'<text {at} fill="{colors[name]}">{end}</text>')
    return parts + (apart(curves, (x0, y0 + tall + 30), x, colors) if beneath else [])


def line(numbers, x, y, color):
    """A curve."""
    path = " ".join(f"{x(i):.1f},{y(number):.1f}" for i, number in enumerate(numbers))
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5" stroke-opacity="0.8"/>'


def apart(curves, corner, x, colors):
    """The curves less the first one, beneath them."""
    (x0, y0), first = corner, smooth(next(iter(curves.values()))[0])
    less = {name: [loss - one for loss, one in zip(smooth(numbers), first)] for name, (numbers, _) in curves.items()}
    most = max(abs(number) for numbers in less.values() for number in numbers)
    y = lambda number: y0 + (0.5 - number / most / 2) * (APART - 30)
    parts = [f'<path d="M{x0} {y(0):.1f}h{WIDTH}" stroke="#ddd"/>']
    for tick in (-most, most):
        parts.append(f'<text x="{x0 - 8}" y="{y(tick) + 4:.1f}" text-anchor="end" font-size="10">{tick:+.2f}</text>')
    return parts + [line(numbers, x, y, colors[name]) for name, numbers in less.items()]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--binary", default=os.path.join(ROOT, "target", "release", "meshwright"))
    arguments.add_argument("--data", default=os.path.join(ROOT, "docs"))
    arguments.add_argument("--out", default=os.path.join(ROOT, "target", "loss-curves"), help="folder of the runs")
    arguments.add_argument("--steps", type=int, default=300)
    arguments.add_argument("--seq", type=int, default=128, help="tokens of a sequence")
    arguments.add_argument("--layouts", action="store_true", help="train by every technique in f32, instead of in every precision")
    arguments.add_argument("--seeds", type=int, metavar="N", help="train by the seeds 1 to N in f32 and bf16, and print a table")
    options = arguments.parse_args()
    if options.seeds is not None:
        if options.seeds < 2:
            arguments.error("--seeds takes 2 or more: one seed has no spread")
        seeds(options)
    elif options.layouts:
        panels = [(name, layouts(options, model), dict(zip(LAYOUTS[model], COLORS))) for model, name in MODELS.items()]
        draw([panels], "layout-curves.svg", HEIGHT)
    else:
        draw([precisions(options, model, name) for model, name in MODELS.items()], "loss-curves.svg", HEIGHT)


def seeds(options):
    """Prints means over seeds with their standard errors: losses of single seeds differ by more than formats do. Differences are taken seed by seed."""
    with_error = lambda numbers: (statistics.mean(numbers), statistics.stdev(numbers) / len(numbers) ** 0.5)
    print("| model | seeds | f32, nats per byte | bf16 | bf16 to f32 |\n|---|---|---|---|---|")
    for model in MODELS:
        f32, bf16 = ([losses(options, model, "dp=1", p, seed + 1)[1] for seed in range(options.seeds)] for p in ("f32", "bf16"))
        apart = [(b - a) / a * 100 for a, b in zip(f32, bf16)]
        means = " | ".join("{:.4f} ± {:.4f}".format(*with_error(numbers)) for numbers in (f32, bf16))
        print(f"| {model} | {options.seeds} | {means} | {'{:+.2f} ± {:.2f} %'.format(*with_error(apart))} |", flush=True)


def layouts(options, model):
    """Curves of a model by layout."""
    return {config: losses(options, model, config, "f32") for config in LAYOUTS[model]}


def precisions(options, model, name):
    """Panels of a model, with the curves of each precision, on each configuration."""
    return [
        (f"{name}: {CONFIGS[config]}", {p: losses(options, model, config, p) for p in PRECISIONS}, PRECISIONS)
        for config in CONFIGS
    ]


def draw(rows, file, height):
    """Draws rows of panels, each a title, its curves and their colours, on one scale in a row."""
    parts, tall = [], height
    for row, panels in enumerate(rows):
        every = [loss for _, curves, _ in panels for numbers, _ in curves.values() for loss in smooth(numbers)]
        for column, (title, curves, colors) in enumerate(panels):
            box = LEFT + column * (WIDTH + LEFT), TOP + row * (tall + 60), tall
            parts += panel(title, curves, box, (min(every), max(every)), colors)
    most = max(len(curves) for panels in rows for _, curves, _ in panels)
    width, height = 2 * (WIDTH + LEFT) + 16, TOP + len(rows) * (tall + 60) + (APART + 14 * most if most > FEW else 0)
    end = "; beneath, the difference to one device, and validation losses" if most > FEW else ""
    parts.append(f'<text x="{LEFT}" y="{height - 8}">loss in nats per byte by step, means of {SMOOTH} steps{end}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
    with open(os.path.join(ROOT, "docs", file), "w") as out:
        out.write("\n".join([head, f'<rect width="{width}" height="{height}" fill="white"/>', *parts, "</svg>"]) + "\n")


if __name__ == "__main__":
    main()
