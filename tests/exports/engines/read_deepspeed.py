"""DeepSpeed's own reading of a file: its configuration classes and their checks.

Runs in the environment of DeepSpeed, with `DS_ACCELERATOR=cpu`. A line of standard input is a job, `{"text", "dp"}`; the answer is a line,
`{"why", "read"}`.
"""

import json
import os
import sys
import typing

os.environ["DS_ACCELERATOR"] = "cpu"
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

from answering import serve
import deepspeed.runtime.config as config
import pydantic
import rows
from deepspeed.runtime.config_utils import DeepSpeedConfigModel

# Questions about processes, of which there is one.
config.dist.get_rank = lambda *_: 0
config.dist.get_world_size = lambda *_: 1


class Ranks:
    def __init__(self, dp):
        self.dp = dp

    def get_data_parallel_world_size(self):
        return self.dp


class Asked(dict):
    """A section that writes down the keys that it is asked for."""

    def __init__(self, values, path, log):
        super().__init__(values)
        self.path, self.log = path, log

    def asked(self, key):
        if isinstance(key, str):
            self.log.setdefault(self.path + key)

    def get(self, key, default=None):
        self.asked(key)
        return super().get(key, default)

    def __getitem__(self, key):
        self.asked(key)
        return super().__getitem__(key)

    def __contains__(self, key):
        self.asked(key)
        return super().__contains__(key)

    def keys(self):
        return Names(self)


class Names:
    """The names of a section."""

    def __init__(self, section):
        self.section = section

    def __contains__(self, name):
        return name in self.section

    def __iter__(self):
        return iter(self.section)


def asked(section, value):
    """Keys that DeepSpeed asks for where a section is given, and the class that reads the section, if one does."""
    log = {}
    stated = Asked({"train_batch_size": 8, section: value(log)} if section else {"train_batch_size": 8}, "", log)
    try:
        config.DeepSpeedConfig(stated, mpu=Ranks(1))
    except pydantic.ValidationError as why:
        # A class may read several sections, each of which is a field of it.
        is_field = why.errors()[0]["loc"][0] == section
        return log, Read(why.title, "" if is_field else f"{section}.")
    except Exception:
        pass
    return log, None


class Read(typing.NamedTuple):
    """A class that reads a section, by its name, and the path of its fields."""

    kind: str
    path: str


def classes(kind):
    """A class by its name, with those that derive from it."""
    yield kind.__name__, kind
    for derived in kind.__subclasses__():
        yield from classes(derived)


def of_class(kind, path, group):
    """Rows of the fields of a class and of those within it, by their paths."""
    for name, field in kind.model_fields.items():
        names = [path + (field.alias or name)] + ([path + name] if field.alias else [])
        default = "" if field.is_required() else str(getattr(field.default, "value", field.default))
        inner = [part for part in rows.parts(field.annotation) if isinstance(part, type) and issubclass(part, pydantic.BaseModel)]
        # Sections of a class take no other keys.
        if not inner:
            yield {**rows.row(names[0], group, field.annotation, default), "flags": names}
        for part in inner:
            yield from of_class(part, f"{names[0]}.", group)


def flags():
    """Rows of all keys: those that DeepSpeed asks the file for, and the fields of the classes that read its sections."""
    kinds = dict(classes(DeepSpeedConfigModel))
    for section in asked(None, None)[0]:
        log, read = asked(section, lambda log: {"no such key": 1})
        if read and read.kind in kinds:
            yield from of_class(kinds[read.kind], read.path, section)
            continue
        yield {"flags": [section], "group": section, "default": "", "choices": [], "takes": "one"}
        log, _ = asked(section, lambda log: Asked({}, f"{section}.", log))
        for name in log:
            if name.startswith(f"{section}."):
                yield {"flags": [name], "group": section, "default": "", "choices": [], "takes": "one"}


KNOWN = set(asked(None, None)[0])


def accepted(job):
    """What DeepSpeed's configuration of a job states.

    Raises what DeepSpeed raises."""
    stated = json.loads(job["text"])
    if unknown := [name for name in stated if name not in KNOWN]:
        raise ValueError(f"DeepSpeed ignores {unknown}")
    read = config.DeepSpeedConfig(stated, mpu=Ranks(job["dp"]))
    return {
        "global_batch": read.train_batch_size, "mbs": read.train_micro_batch_size_per_gpu, "microbatches": read.gradient_accumulation_steps, "zero": read.zero_optimization_stage,
        "overlap": read.zero_config.overlap_comm, "host": read.zero_config.offload_optimizer is not None,
        "bf16": read.bfloat16_config.enabled, "fp16": read.float16_config.enabled, "accumulated": read.grad_accum_dtype, "tp": read.tensor_parallel_config.autotp_size,
    }


if sys.argv[1:] == ["--flags"]:
    print(json.dumps(rows.unique(flags())), file=ANSWERS, flush=True)
else:
    serve(accepted, ANSWERS)
