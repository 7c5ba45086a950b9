"""Plans the training of large models on many devices.

Each function is a subcommand of `meshwright`; its keyword arguments are the flags, and its answer is what `--format json` prints.
No function imports PyTorch unless it returns objects of PyTorch.
"""

import json as _json
from builtins import open as _open

from . import _native
from ._call import Error, call as _call
from ._reports import Estimate, Export, Plan, Prediction, Report, Schedule

__version__ = _native.__version__
__all__ = [
    "Error", "Estimate", "Export", "Plan", "Prediction", "Report", "Schedule",
    "clusters", "diff", "estimate", "models", "open", "plan", "reshard", "schedule", "schedules", "stacks",
]


def plan(model=None, **flags):
    """The best configuration of a model on a cluster.

    `model` is a preset, a path, the keys of a config.json, or a configuration of `transformers`. Raises Error if nothing fits; its
    `answer` then has the conflict and the cheapest fixes.
    """
    if "why_not" in flags:
        raise TypeError("why_not is a question to a plan: plan(..).why_not(pins)")
    return Plan(_call("plan", model, **flags, format="json"))


def estimate(model=None, *, parallel=None, **flags):
    """The predicted step of a configuration: text, or a dict of its keys.

    Of a list of configurations each gets its Estimate, or the Error that refuses it; they share the work that they have in common.
    """
    if not isinstance(parallel, (list, tuple)):
        return Estimate(_call("estimate", model, parallel=parallel, **flags, format="json"))
    try:
        lines = _call("estimate", model, configs=parallel, **flags, format="json")
    except Error as error:
        # Lines that are no configuration have their errors among the answers.
        if not error.output:
            raise
        lines = error.output
    return [_of_line(line) for line in lines.splitlines()]


def _of_line(line):
    told = _json.loads(line)
    if told["status"] != "error":
        return Estimate(line)
    return Error((told["code"], told["error"].splitlines()[0], told["error"]))


def schedule(kind=None, **flags):
    """A pipeline schedule, checked and simulated. `kind` is one of `schedules()`."""
    return Schedule(_call("schedule", kind=kind, **flags, format="json"), flags)


def reshard(mesh, shape, from_, to, **flags):
    """The cheapest collectives between two shardings of a tensor, such as `{x},{y}`. `mesh` is a dict of axes, or text."""
    return Report(_call("reshard", mesh=mesh, shape=shape, from_=from_, to=to, **flags, format="json"))


def diff(*compared, **flags):
    """What differs between two predictions or plans, or between two configurations of a model: diff(model, a, b, gpus=8, ..)."""
    return Report(_call("diff", *compared, **flags, format="json"))


def open(path):
    """The Plan or the Estimate of a file."""
    with _open(path, encoding="utf-8") as file:
        text = file.read()
    return Plan(text) if Report(text)["schema"].startswith("meshwright.plan/") else Estimate(text)


def models():
    """The preset models."""
    return _json.loads(_call("models", format="json"))


def clusters():
    """The preset clusters."""
    return _json.loads(_call("clusters", format="json"))


def stacks():
    """The preset software stacks."""
    return _json.loads(_call("stacks", format="json"))


def schedules():
    """The kinds of schedules."""
    return _json.loads(_call("schedules", format="json"))
