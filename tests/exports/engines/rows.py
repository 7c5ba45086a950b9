"""Rows of a table of keys, by an engine's own configuration classes.

    python rows.py torchtitan.trainer:Trainer.Config
"""

import dataclasses
import enum
import functools
import importlib
import json
import sys
import types
import typing


# Fields that hold a model, not settings.
MODELS = ["model_spec"]


def parts(kind):
    """A type, or the types of a union, without `None`."""
    inner = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    return [part for part in inner if part is not type(None)]


def choices(kind):
    """The values of a type that lists them."""
    listed = []
    for part in parts(kind):
        if typing.get_origin(part) is typing.Literal:
            listed += [str(value) for value in typing.get_args(part)]
        elif isinstance(part, type) and issubclass(part, enum.Enum):
            listed += [str(value.value) for value in part]
        else:
            return []
    return listed


def row(name, group, kind, default):
    takes = "many" if any(typing.get_origin(part) in (list, tuple, dict) for part in parts(kind)) else "one"
    return {"flags": [name], "group": group, "default": default, "choices": choices(kind), "takes": takes}


def of_dataclass(kind, prefix="", group=""):
    """Rows of the fields of a dataclass and of those within it, by their paths."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        kinds = parts(hints[field.name])
        inner = [part for part in kinds if dataclasses.is_dataclass(part)]
        path = f"{prefix}{field.name}"
        if path in MODELS:
            continue
        # Classes that take turns in a place are a choice.
        if len(inner) != 1 or len(kinds) > 1:
            default = "" if field.default is dataclasses.MISSING else str(field.default)
            yield row(path, group or "top level", hints[field.name], default)
        for part in inner:
            yield from of_dataclass(part, f"{path}.", group or field.name)


def unique(rows):
    """Rows by name: classes that take turns in one place share fields."""
    found = {}
    for each in rows:
        found.setdefault(each["flags"][0], each)
    return list(found.values())


def main():
    module, _, path = sys.argv[1].partition(":")
    kind = functools.reduce(getattr, path.split("."), importlib.import_module(module))
    print(json.dumps(unique(of_dataclass(kind))))


if __name__ == "__main__":
    main()
