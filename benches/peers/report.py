"""The table of all settings, and the section of docs/benchmarks.md that has it."""

import os
import statistics
import textwrap

from cases import FOLDER, OPTIMIZER
from settings import MESHWRIGHT

DOCUMENT = os.path.join(os.path.dirname(os.path.dirname(FOLDER)), "docs", "benchmarks.md")
BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"

# The largest difference of a loss from Meshwright's. In bf16 the programs round different values of a layer.
TOLERANCE = {"f32": 1e-3, "bf16": 1e-2}

HEAD = [
    "model",
    "setting",
    "steps",
    "least, s",
    "median, s",
    "tokens/s",
    "GFLOP/s",
    "over Meshwright",
    "peak memory, GB",
    "loss difference",
]


# Settings that the document shows; the script prints all.
DOCUMENTED = [
    "Meshwright, `dp=1`",
    "Meshwright, `dp=1`, bf16",
    "PyTorch, eager",
    "PyTorch, compile max-autotune, memory reused",
    "PyTorch, compile max-autotune, bf16",
    "JAX, jit",
]

NOTES = [
    "- *Steps* are those of all rounds after warm-up. Speeds are of the least time. GFLOP/s count 6 FLOPs for each token and "
    "weight of a product, and causal attention.",
    "- *Over Meshwright* is the least time over that of Meshwright with `dp=1` in the same precision.",
    "- *Loss difference* is the largest one from Meshwright's losses with `dp=1` in the same precision, over all steps. More than "
    f"{TOLERANCE['f32']:g} in f32 or {TOLERANCE['bf16']:g} in bf16 is an error of the script.",
    "- *Memory reused* stops glibc from returning blocks to the system: `MALLOC_MMAP_MAX_=0`, `MALLOC_TRIM_THRESHOLD_`, one arena.",
]


class Report:
    """Results, with what they are compared with."""

    def __init__(self, results):
        self.results, self.wrong = results, []
        self.rows = [self.row(result) for result in results]

    def reference(self, result, devices):
        """The fastest result of Meshwright on the same case in the same precision, if one has steps."""
        alike = []
        for other in self.results:
            setting = other.setting
            same = other.case == result.case and setting.precision == result.setting.precision
            if same and setting.program == MESHWRIGHT and setting.devices == devices and other.seconds():
                alike.append(other)
        return min(alike, key=lambda other: min(other.seconds()), default=None)

    def row(self, result):
        """Cells of a setting. A loss that differs, and a failure that no option explains, are wrong."""
        start = [result.case.name, result.setting.name]
        reason = result.reason or self.reason(result)
        if reason:
            return [*start, reason]
        seconds = result.seconds()
        least, median = min(seconds), statistics.median(seconds)
        against = self.reference(result, result.setting.against[0])
        ratio = f"{least / min(against.seconds()):.2f}" if against else "-"
        speeds = [f"{result.case.tokens / least:.0f}", f"{result.case.flops() / least / 1e9:.0f}"]
        peak = max(measured.peak_bytes for measured in result.rounds) / 1e9
        return [*start, str(len(seconds)), digits(least), digits(median), *speeds, ratio, f"{peak:.2f}", self.losses(result)]

    def reason(self, result):
        """Why a setting has no steps; none if it has."""
        failures = [measured.failure for measured in result.rounds if measured.failure]
        if failures:
            if not result.setting.optional:
                self.wrong.append(f"{result.case.name}, {result.setting.name}: {failures[0]}")
            return f"not available: {failures[0]}" if result.setting.optional else f"failed: {failures[0]}"
        if not result.seconds():
            return f"no step after warm-up within {result.rounds[-1].limit:.0f} s"
        return None

    def losses(self, result):
        """The cell of the loss difference."""
        against = self.reference(result, 1)
        if against is None:
            return "not compared"
        difference = result.difference(against.losses())
        tolerance = TOLERANCE[result.setting.precision]
        if not difference <= tolerance:
            self.wrong.append(
                f"{result.case.name}, {result.setting.name}: a loss differs by {difference:.1e}, more than {tolerance}"
            )
            return f"{difference:.0e}, more than {tolerance:g}"
        return f"{difference:.0e}" if difference else "0"

    def table(self, settings=None):
        """The Markdown table, of some settings or of all. A reason takes the place of the figures."""
        lines = [HEAD, ["---"] * len(HEAD)]
        rows = [row for row in self.rows if settings is None or row[1] in settings]
        lines += [row if len(row) == len(HEAD) else [*row, *["-"] * (len(HEAD) - len(row))] for row in rows]
        return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def digits(seconds):
    """Seconds with three digits that count."""
    return f"{seconds:.3f}" if seconds < 1 else f"{seconds:.1f}" if seconds >= 10 else f"{seconds:.2f}"


def section(report, machine, load):
    """The text between the markers of the document. `load` says what else ran on the machine."""
    cases = list(dict.fromkeys(result.case for result in report.results))
    sizes = "; ".join(f"{case.name}, {case.batch} sequences of {case.seq} tokens" for case in cases)
    dates = sorted({measured.date for result in report.results for measured in result.rounds})
    paragraphs = [
        "`python3 benches/peers/run.py --write` writes this section. Every setting trains the same model from the same weights on "
        "the same batches, in a process of its own on the same cores. The settings take turns. "
        f"Measured {' and '.join(dates)} on {machine}. {load}",
        f"The batches: {sizes}. AdamW has a rate of {OPTIMIZER['lr']:g}, betas of {OPTIMIZER['beta1']} and {OPTIMIZER['beta2']}, "
        f"a decay of {OPTIMIZER['weight_decay']} on matrices and a clip of {OPTIMIZER['clip']:g}. Tokens are bytes, whatever "
        "the vocabulary.",
        *NOTES,
    ]
    return "\n\n".join([*map(wrapped, paragraphs[:2]), "\n".join(map(wrapped, paragraphs[2:])), report.table(DOCUMENTED)])


def wrapped(paragraph):
    """A paragraph or an item in the lines of the document."""
    indent = "  " if paragraph.startswith("- ") else ""
    options = dict(break_long_words=False, break_on_hyphens=False)
    return textwrap.fill(paragraph, 126, subsequent_indent=indent, **options)


def write(text, first=BEGIN, last=END):
    """Replaces the part of the document between two markers."""
    with open(DOCUMENT) as file:
        before, begin, rest = file.read().partition(first)
        _, end, after = rest.partition(last)
    if not begin or not end:
        raise SystemExit(f"docs/benchmarks.md lacks the lines {first} and {last}")
    with open(DOCUMENT, "w") as file:
        file.write(f"{before}{first}\n\n{text}\n{last}{after}")
