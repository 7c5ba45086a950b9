"""Calls of the command line: keyword arguments are its flags, and its errors are exceptions."""

import json
import os
import warnings

from . import _native

# Flags that a call sets itself, or that mean something for a terminal alone.
OWN = {"format", "output", "help", "version"}


class Error(Exception):
    """A refused call. Its text is what the command prints.

    `code` is the code that `meshwright error CODE` explains (None for an internal error), `message` one line, and `status` the exit
    status of the command. `output` is what the command answers nevertheless, such as the conflict of a plan that does not fit.
    """

    def __init__(self, told, status=1, output=""):
        self.code, self.message, text = told
        self.status, self.output = status, output
        super().__init__(text.rstrip())

    @property
    def answer(self):
        """The JSON of `output`, if there is one."""
        return json.loads(self.output) if self.output else None

    def __reduce__(self):
        return Error, ((self.code, self.message, str(self)), self.status, self.output)


def call(command, *words, **flags):
    """The text that the command prints. Raises Error."""
    with Files() as files:
        reply = _native.reply([command, *(positional(word, files) for word in words if word is not None), *arguments(flags, files)])
    text, notes, status, error = reply
    for note in notes:
        # The configuration that was read from a file is part of the answer.
        if not note.startswith("configuration: "):
            warnings.warn(note, stacklevel=3)
    if error:
        raise Error(error, status, text)
    return text


def arguments(flags, files):
    """The words of keyword arguments."""
    for name, value in flags.items():
        if name in OWN and not (name == "format" and value in FORMATS):
            raise TypeError(f"{name} is an option of the command, not of this function")
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is True:
            yield flag
        elif value is not None and value is not False:
            yield f"{flag}={files.path(value, FILES[name])}" if is_content(name, value) else f"{flag}={text(value)}"


# The formats that calls ask for.
FORMATS = {"json", "csv", "svg", "html", "grid", "trace", "table"}
# Flags that take a file, and how their contents are written to one.
FILES = {"costs": "json", "configs": "lines", "request": "json"}


def is_content(name, value):
    return name in FILES and not isinstance(value, (str, os.PathLike))


def text(value):
    """A value as the command line writes it."""
    if isinstance(value, dict):
        pairs = ((key, text(item)) for key, item in value.items() if item is not None)
        return ",".join(f"{key}={item}" for key, item in pairs if item)
    if isinstance(value, (list, tuple)):
        return ",".join(text(item) for item in value)
    if isinstance(value, bool):
        return str(value).lower()
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def positional(word, files):
    """A model, a configuration, or the file of a report."""
    if hasattr(word, "json") and isinstance(word.json, str):
        return files.write(word.json, ".json")
    if hasattr(word, "to_dict"):
        word = word.to_dict()
    if isinstance(word, dict):
        # A configuration of `transformers` has a kind of model; one of this package has degrees.
        return json.dumps(word) if "model_type" in word else text(word)
    return text(word)


class Files:
    """Files that are gone after a call."""

    def __init__(self):
        self.folder = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.folder is not None:
            self.folder.cleanup()

    def write(self, content, ending):
        import tempfile

        self.folder = self.folder or tempfile.TemporaryDirectory(prefix="meshwright-")
        path = os.path.join(self.folder.name, f"{len(os.listdir(self.folder.name))}{ending}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        return path

    def path(self, value, form):
        if form == "lines":
            lines = (line if isinstance(line, str) else json.dumps({"parallel": text(line)}) for line in value)
            return self.write("".join(f"{line}\n" for line in lines), ".jsonl")
        return self.write(json.dumps(value), ".json")
