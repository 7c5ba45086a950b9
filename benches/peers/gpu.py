"""Compares kernels and a training step of Meshwright on a GPU with PyTorch's, on the same shapes.

    cargo build --profile dist --features full
    python3 benches/peers/gpu.py --write

Needs PyTorch with CUDA, and no network. Both sides take turns, each in processes of its own: `meshwright gpu-check --only ROW`, and
`gpu_peer.py`. The table goes to standard output, progress to standard error; `--write` also puts the table into docs/benchmarks.md.
The exit status is 1 if a row of gpu-check fails. Attention is compared with each backend of PyTorch by its name. `--dry-run` prints the
commands, and `--small` tries PyTorch's side on the processor.
"""

import argparse
import datetime
import json
import os
import re
import shlex
import subprocess
import sys

import report
from cases import FOLDER
from gpu_rows import ROWS
from measure import last_line
from run import built

BEGIN, END = "<!-- gpu peers: begin -->", "<!-- gpu peers: end -->"
HEAD = ["work", "shape", "Meshwright", "PyTorch by", "PyTorch", "Meshwright over PyTorch"]
OURS = "Meshwright"


def arguments():
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], help="rows whose name has a match of a pattern [default: all]")
    parser.add_argument("--rounds", type=int, default=3, help="turns of both sides, of which the best counts [default: %(default)s]")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a process [default: %(default)s]")
    parser.add_argument("--device", type=int, default=0, help="index of the GPU [default: %(default)s]")
    parser.add_argument("--binary", help="meshwright [default: that of the profile dist, else of release]")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, and run none")
    parser.add_argument("--small", action="store_true", help="run only PyTorch's side, on small sizes and on the processor")
    parser.add_argument("--write", action="store_true", help="replace the section of docs/benchmarks.md")
    options = parser.parse_args()
    if options.write and (options.small or options.dry_run):
        parser.error("--write needs figures of a GPU: leave out --small and --dry-run")
    options.binary = options.binary or ("meshwright" if options.small or options.dry_run else built())
    return options


class Side:
    """One side of a row: a command, and what its processes gave. `way` is PyTorch's way, or Meshwright."""

    def __init__(self, row, way, options):
        self.row, self.way, self.options = row, way, options
        self.rates, self.failure, self.device = [], "", ""

    def command(self):
        """The command of a process."""
        row, options = self.row, self.options
        if self.way == OURS:
            return [options.binary, "gpu-check", f"--device={options.device}", f"--only={row.check}", "--format=lines"]
        device, script = "cpu" if options.small else "cuda", os.path.join(FOLDER, "gpu_peer.py")
        return [sys.executable, script, device, row.work, self.way, json.dumps(list(row.sizes))]

    def measure(self):
        """Runs a process. A side that has failed is not tried again."""
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(self.options.device)} if self.way != OURS else None
        try:
            limit = self.options.limit
            done = subprocess.run(self.command(), env=environment, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            self.failure = f"no answer within {self.options.limit:.0f} s"
            return
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        try:
            self.rates.append(self.rate(lines))
        except LookupError:
            self.failure = last_line(done.stderr) or f"exit status {done.returncode}"
        except ValueError as why:
            self.failure = str(why)

    def rate(self, lines):
        """The rate that a process reported."""
        if self.way == OURS:
            row = next(line for line in lines if (line["what"], line["shape"]) == (self.row.check, self.row.shape)) if lines else {}
            if not row["right"]:
                raise ValueError(row["note"] or f"an error of {row['error']:.1e}, more than {row['bound']:.1e}")
            return row["rate"]
        found = lines[-1]
        self.device = found["device"]
        return found.get("amount", self.row.amount()) / found["seconds"]

    def best(self):
        """The best rate, or none."""
        return max(self.rates, default=None)

    def shown(self):
        """The cell of the table."""
        if self.rates:
            return digits(self.best(), self.row.unit)
        return f"not available: {self.failure}" if self.failure else "-"


def digits(rate, unit):
    """A rate in the largest unit below it, with three digits that count."""
    for power, prefix in ((12, "T"), (9, "G"), (6, "M")):
        if rate >= 10**power:
            return f"{rate / 10**power:.3g} {prefix}{unit}"
    return f"{rate:.3g} {unit}"


def table(sides):
    """The Markdown table: a line for each of PyTorch's ways."""
    lines = [HEAD, ["---"] * len(HEAD)]
    for ours, theirs in sides:
        ratio = f"{ours.best() / theirs.best():.2f}" if ours.rates and theirs.rates else "-"
        lines.append([ours.row.check, ours.row.shape, ours.shown(), f"`{theirs.way}`", theirs.shown(), ratio])
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def versions(options):
    """Meshwright and PyTorch with their versions."""
    import torch

    own = subprocess.run([options.binary, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    return f"Meshwright {own}, torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"


def section(sides, options):
    """The text between the markers of the document."""
    device = next((theirs.device for _, theirs in sides if theirs.device), "a GPU")
    paragraphs = [
        "`python3 benches/peers/gpu.py --write` writes this section. Both sides take turns in processes of their own; the best of "
        f"{options.rounds} counts. Measured {datetime.date.today().isoformat()} on {device}: {versions(options)}.",
        "Rates of Meshwright are those of `meshwright gpu-check`, which compares the same launches with the processor. FLOPs of both "
        "are counted alike: causal attention has the pairs in which one sees the other.",
    ]
    return "\n\n".join([*map(report.wrapped, paragraphs), table(sides)])


def main():
    options = arguments()
    rows = [row for row in ROWS if any(re.search(part, row.name, re.I) for part in options.only)]
    if not rows:
        sys.exit(f"no row has that in its name: {'; '.join(row.name for row in ROWS)}")
    if options.small:
        rows = [row.small() for row in rows]
    sides = []
    for row in rows:
        ours = Side(row, OURS, options)
        sides += [(ours, Side(row, way, options)) for way in row.ways]
    processes = list(dict.fromkeys(side for pair in sides for side in pair if side.way != OURS or not options.small))
    if options.dry_run:
        print("\n".join(shlex.join(side.command()) for side in processes))
        return
    for number in range(1, options.rounds + 1):
        for side in processes:
            if not side.failure:
                print(f"round {number}: {side.row.name}, {side.way}", end=" ", file=sys.stderr, flush=True)
                side.measure()
                print(digits(side.rates[-1], side.row.unit) if not side.failure else side.failure, file=sys.stderr, flush=True)
    print(table(sides), end="")
    wrong = [side for side in processes if side.way == OURS and side.failure]
    for side in wrong:
        print(f"error: {side.row.name}: {side.failure}", file=sys.stderr)
    if options.write and not wrong:
        report.write(section(sides, options), BEGIN, END)
    sys.exit(1 if wrong or (options.small and any(side.failure for side in processes if side.row.ways == ("default",))) else 0)


if __name__ == "__main__":
    main()
