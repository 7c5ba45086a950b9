"""How far a small model of each family is from PyTorch, on one device and on drawn layouts."""

import json
import os
import tempfile

import cases
import drawn
import rust

# Layouts of each family beside one device.
LAYOUTS = 4


def compared(binary, families):
    """A row for each of some families that agrees: its layouts, and the most that a loss and a gradient are off. Prints what differs."""
    first = {}
    for name, family, options in cases.CASES:
        if family in families and name not in cases.DOCUMENTS:
            first.setdefault(family, options)
    with tempfile.TemporaryDirectory() as folder:
        numbers = {}
        for number, (family, options) in enumerate(first.items(), 1):
            if drawn.write(binary, folder, number, family, options, None, LAYOUTS) == "compared":
                numbers[family] = str(number)
        run = rust.run(folder, capture_output=True, text=True)
        print(run.stdout + (run.stderr if run.returncode else ""), flush=True)
        return {family: row(os.path.join(folder, number)) for family, number in numbers.items()}


def row(path):
    with open(os.path.join(path, "agreement.json")) as file:
        return json.load(file)


def cells(rows, family):
    """The cells of a family in a table; empty where nothing was compared."""
    of = rows.get(family)
    return f"{of['layouts']} | {of['loss']:.1e} | {of['gradient']:.1e}" if of else " | | "
