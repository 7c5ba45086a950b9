"""Trains two small models with experts 500 steps without and with balance, on one device and on eight. Prints a table of losses and of the loads of
experts, and draws the loads of each layer: docs/book/src/expert-loads.svg.

    cargo build --release --features full
    python3 benches/expert_loads.py

Nothing but Python's standard library is needed. Runs that are there are not repeated; `--out` has them.
"""

import argparse
import json
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COMMON = dict(vocab_size=257, hidden_size=64, num_attention_heads=4, head_dim=16, tie_word_embeddings=False, initializer_range=0.05)
# Keys of both models.
MIXTRAL = dict(
    COMMON, model_type="mixtral", intermediate_size=96, num_hidden_layers=4, num_key_value_heads=2, num_local_experts=8,
    num_experts_per_tok=2, sliding_window=None, routing_group=32,
)
DEEPSEEK = dict(
    COMMON, model_type="deepseek_v3", intermediate_size=128, moe_intermediate_size=48, num_hidden_layers=4, num_key_value_heads=4,
    first_k_dense_replace=1, n_routed_experts=16, n_shared_experts=1, num_experts_per_tok=2, n_group=4, topk_group=2, norm_topk_prob=True,
    routed_scaling_factor=1.0, kv_lora_rank=16, q_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, routing_group=32,
)
KINDS = {
    "Mixtral's kind": (MIXTRAL, "micro_batch=0.01,z=0.001", "dp=4,mbs=4,tp=2,ep=4,sp=true,zero=1"),
    "DeepSeek-V3's kind": (DEEPSEEK, "sequence=1e-4,bias=3e-3", "dp=4,mbs=4,pp=2,ep=4"),
}
# Steps at the end, whose counts and losses are taken together, and those at the begin in which losses are compared.
LAST, FIRST = 50, 20
ONE, EIGHT = "#2a6f97", "#edae49"
BAR, GAP, HEIGHT, LEFT = 7, 16, 120, 60


# Eight stages of a block each: embedding, six layers, head. They add in the order of one device, but for the norm of the gradient: nothing
# is clipped by it.
STAGES = dict(num_hidden_layers=6)
ORDERED = ("mbs=2", "pp=8,mbs=2")


def records(options, model, balance, config, *flags):
    """The records of the steps of a run, and its validation loss."""
    kind = "".join([model["model_type"], *flags])
    out = os.path.join(options.out, f"{kind}-{balance.partition('=')[0]}-{config}")
    if not os.path.exists(os.path.join(out, "done")):
        command = [options.binary, "train", f"{json.dumps(model)}+balance={balance}", "--data", options.data, "--parallel", config]
        command += ["--steps", str(options.steps), "--seq", "64", "--global-batch", "16", "--lr", "3e-3", "--routing-every=1", "--eval-every", "0"]
        subprocess.run([*command, "--final-eval-batches", "16", "--out", out, *flags], check=True)
        open(os.path.join(out, "done"), "w").close()
    with open(os.path.join(out, "metrics.jsonl")) as file:
        lines = [json.loads(line) for line in file]
    return [line for line in lines if "grad_norm" in line], [line["valid_loss"] for line in lines if "valid_loss" in line][-1]


def loads(steps):
    """The tokens of each expert over the mean of its layer, by layer, in the last steps together."""
    found = {}
    for layer in steps[-1]["routing"]["counts"]:
        counts = [sum(of) for of in zip(*(step["routing"]["counts"][layer] for step in steps[-LAST:]))]
        found[layer] = [count * len(counts) / sum(counts) for count in counts]
    return found


def same(one, eight):
    """Steps until a count differs, and the most that losses differ in the first ones, relative."""
    steps = next((at for at, (a, b) in enumerate(zip(one, eight)) if a["routing"]["counts"] != b["routing"]["counts"]), len(one))
    apart = max(abs(a["loss"] - b["loss"]) / a["loss"] for a, b in zip(one[:FIRST], eight[:FIRST]))
    return steps, apart


def ordered(options, model, balance):
    """The steps in which one device and eight stages have the same bits: losses and counts."""
    runs = [records(options, {**model, **STAGES}, balance, config, "--clip=0")[0] for config in ORDERED]
    return sum(one["loss"] == other["loss"] and one["routing"]["counts"] == other["routing"]["counts"] for one, other in zip(*runs))


def bars(title, both, corner, high):
    """The loads of the layers of a model, on one device and on eight."""
    x0, y0 = corner
    y = lambda load: y0 + (1 - load / high) * HEIGHT
    parts, x = [f'<text x="{x0}" y="{y0 - 10}" font-weight="bold">{title}</text>'], x0
    for layer in both[0]:
        begin = x
        for pair in zip(*(sorted(loads[layer], reverse=True) for loads in both)):
            for load, color in zip(pair, (ONE, EIGHT)):
                parts.append(f'<rect x="{x}" y="{y(load):.1f}" width="{BAR / 2}" height="{y0 + HEIGHT - y(load):.1f}" fill="{color}"/>')
                x += BAR / 2
            x += 2
        parts.append(f'<text x="{(begin + x) / 2:.1f}" y="{y0 + HEIGHT + 15}" text-anchor="middle">{layer}</text>')
        x += GAP
    for tick in (1, int(high)):
        parts.append(f'<path d="M{x0} {y(tick):.1f}H{x - GAP}" stroke="#222" stroke-dasharray="2 3"/>')
        parts.append(f'<text x="{x0 - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick}</text>')
    return parts, x


def draw(rows):
    """Draws a row of panels for each kind: without balance, and with it."""
    parts, width, top = [], 0, 40
    for panels in rows:
        left, high = LEFT, max(max(max(loads) for loads in both[0].values()) for _, both in panels)
        for title, both in panels:
            of, end = bars(title, both, (left, top), high)
            parts, left, width = parts + of, end + LEFT, max(width, end + 20)
        top += HEIGHT + 70
    for at, (name, color) in enumerate([("one device", ONE), ("eight devices", EIGHT)]):
        parts.append(f'<text x="{LEFT + 110 * at}" y="{top - 10}" fill="{color}">{name}</text>')
    parts.append(f'<text x="{LEFT + 220}" y="{top - 10}">tokens of an expert over the mean of its layer, busiest first</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top + 8}" font-family="sans-serif" font-size="12">'
    with open(os.path.join(ROOT, "docs", "book", "src", "expert-loads.svg"), "w") as out:
        out.write("\n".join([head, f'<rect width="{width}" height="{top + 8}" fill="white"/>', *parts, "</svg>"]) + "\n")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--binary", default=os.path.join(ROOT, "target", "release", "meshwright"))
    arguments.add_argument("--data", default=os.path.join(ROOT, "docs"))
    arguments.add_argument("--out", default=os.path.join(ROOT, "target", "expert-loads"), help="folder of the runs")
    arguments.add_argument("--steps", type=int, default=500)
    options = arguments.parse_args()
    rows = []
    print("| model, `+balance=` | devices | load | idlest | loss, last 50 steps | validation loss | equal counts |\n|---|---|---|---|---|---|---|")
    for kind, (model, balance, eight) in KINDS.items():
        panels = []
        for asked in ("counts", balance):
            runs = [records(options, model, asked, config) for config in ("mbs=16", eight)]
            equal, apart = same(*(steps for steps, _ in runs))
            both = [loads(steps) for steps, _ in runs]
            for devices, (steps, valid), found in zip((1, 8), runs, both):
                worst, idlest = max(map(max, found.values())), min(map(min, found.values()))
                loss = sum(step["loss"] for step in steps[-LAST:]) / LAST
                told = f"{equal} steps, losses {apart:.0e} apart in the first {FIRST}" if devices == 8 else ""
                print(f"| {kind}, `{asked}` | {devices} | {worst:.2f} | {idlest:.2f} | {loss:.3f} | {valid:.3f} | {told} |", flush=True)
            print(f"| | {ORDERED[1]} | | | | | losses and counts of {ordered(options, model, asked)} steps have the bits of one device |", flush=True)
            panels.append((f"{kind}, {'no balance' if asked == 'counts' else balance}", both))
        rows.append(panels)
    draw(rows)


if __name__ == "__main__":
    main()
