"""Answers: the JSON that the command prints, and what is derived from it."""

import json as _json

from . import _native
from ._call import Error, Files, call


class Report:
    """An answer of the command. `json` is its text, byte by byte; `report["key"]` and `data` are what the text says."""

    def __init__(self, text):
        self.json = text
        self._data = None

    @property
    def data(self):
        if self._data is None:
            self._data = _json.loads(self.json)
        return self._data

    def __getitem__(self, key):
        return self.data[key]

    def __contains__(self, key):
        return key in self.data

    def keys(self):
        return self.data.keys()

    def __eq__(self, other):
        return type(self) is type(other) and self.data == other.data

    __hash__ = None

    def __reduce__(self):
        return type(self), (self.json,)

    def save(self, path):
        """Writes the text to a file, which subcommands read."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.json)

    def __repr__(self):
        return f"<meshwright.{type(self).__name__}>"


class Export:
    """A configuration in the language of a framework: `text` is the file, `notes` the keys that it does not state exactly."""

    def __init__(self, data):
        self.target, self.text, self.notes = data["target"], data["text"], data["notes"]

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text)

    def __str__(self):
        return self.text

    def __repr__(self):
        return f"<meshwright.Export to {self.target}, {len(self.notes)} notes>"


class Prediction(Report):
    """A configuration with its prediction."""

    def __init__(self, text):
        super().__init__(text)
        self._placements = None

    @property
    def parallel(self):
        """The configuration: degrees and options by key."""
        return self.data["parallel"]

    @property
    def step_time(self):
        """Seconds of a step."""
        return self.data["predicted"]["step_time_s"]

    @property
    def memory(self):
        """GiB on the device that needs most."""
        return self.data["predicted"]["memory_gib"]["total"]

    @property
    def fits(self):
        return self.data["predicted"]["fits"]

    def export(self, to, *, strict=False, allow=None):
        """The configuration for `to`, a framework that `meshwright export --help` lists."""
        import warnings

        with warnings.catch_warnings():
            # The notes are part of the answer.
            warnings.simplefilter("ignore")
            return Export(_json.loads(call("export", self, to=to, strict=strict, allow=allow, format="json")))

    def schedule(self):
        """The order of the pipeline, with the predicted times of its stages in ms and their memory in GiB."""
        with Files() as files:
            report, costs, error = _native.schedule_of(files.write(self.json, ".json"))
        if error:
            raise Error(error)
        return Schedule(report, {"costs": _json.loads(costs)})

    def sharding(self):
        """The mesh and the shards of all weights, by their names in `transformers`."""
        if self._placements is None:
            with Files() as files:
                text, error = _native.placements_of(files.write(self.json, ".json"))
            if error:
                raise Error(error)
            self._placements = _json.loads(text)
        return self._placements

    def mesh(self):
        """The axes and their sizes in rank order, for `init_device_mesh`."""
        return tuple((axis["name"], axis["size"]) for axis in self.sharding()["mesh"])

    def placements(self):
        """`Shard` or `Replicate` of each weight on each axis but pp. Weights whose shards are no parts of one dim are left out."""
        from ._torch import placements

        return placements(self.sharding())

    def parallelize_plan(self, *, loss_parallel=False, mesh=None):
        """Styles by module, for `torch.distributed.tensor.parallel.parallelize_module` on the axis tp.

        With `loss_parallel` logits stay sharded over the vocabulary. Experts that ranks share need the mesh of all axes. A tied head is to be tied again afterwards: `model.tie_weights()`.
        """
        from ._torch import parallelize_plan

        return parallelize_plan(self.sharding(), loss_parallel, mesh)

    def __repr__(self):
        return f"<meshwright.{type(self).__name__} {self.data['inputs']['parallel']}: {self.step_time:.4g} s, {self.memory:.1f} GiB>"


class Estimate(Prediction):
    """A prediction of one configuration."""


class Plan(Prediction):
    """The best configuration, and why. Its text explains it, as the command does."""

    @property
    def alternatives(self):
        return self.data["alternatives"]

    def why_not(self, pins, **flags):
        """A comparison with the best configuration that also has these pins."""
        return Report(call("explain", self, why_not=pins, **flags, format="json"))

    def __str__(self):
        head = f"{self['inputs']['parallel']}\n{self.step_time:.4g} s a step, {self.memory:.1f} GiB on the peak-memory device\n\n"
        return head + call("explain", self)

    def html(self):
        """A web page with charts."""
        return call("explain", self, format="html")


class Schedule(Report):
    """A pipeline schedule, simulated. Its text is its drawing."""

    def __init__(self, text, flags):
        super().__init__(text)
        self._flags = flags

    def __reduce__(self):
        return Schedule, (self.json, self._flags)

    @property
    def order(self):
        """The actions of each rank, as `0F0`."""
        return self.data["order"]

    @property
    def bubble(self):
        return self.data["bubble"]

    def ranks(self):
        """The rank of each stage. A stage that is on two ranks has the first one."""
        from ._torch import owners

        return owners(self.order)

    def csv(self, path=None):
        """The order as `torch.distributed.pipelining` loads it, written to `path` if there is one."""
        text = self._again("csv")
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return text

    def svg(self):
        return self._again("svg")

    # A notebook draws it.
    _repr_svg_ = svg

    def html(self):
        return self._again("html")

    def pipeline_order(self):
        """The actions of each rank, as `torch.distributed.pipelining` has them."""
        from ._torch import pipeline_order

        return pipeline_order(self.csv())

    def runtime(self, stages, loss_fn=None, **options):
        """A schedule of `torch.distributed.pipelining` that runs this order on this rank's stages."""
        from ._torch import runtime

        return runtime(self, stages, loss_fn, options)

    def __str__(self):
        return self._again("grid")

    def _again(self, form):
        # The order itself is in the JSON, so that no search runs twice.
        costs = {name: value for name, value in self._flags.items() if name in COSTS}
        with Files() as files:
            return call("schedule", from_=files.write(self.json, ".json"), **costs, format=form)


# Flags of costs, which an order from a file takes too.
COSTS = ("f", "i", "w", "fb", "comm", "memory_limit", "costs", "objective", "sends")
