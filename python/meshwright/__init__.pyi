from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, TypedDict, Unpack, overload

__version__: str

Path = str | PathLike[str]
# A preset, a path, the keys of a config.json, or an object with `to_dict`, such as a configuration of `transformers`.
Model = str | PathLike[str] | Mapping[str, Any] | Any
# `tp=2,zero=1`, or the keys as a dict.
Config = str | Mapping[str, Any]

class _Sizes(TypedDict, total=False):
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    experts: int
    experts_per_token: int
    window: int

class _Job(_Sizes, total=False):
    cluster: Path
    stack: Path
    seq: int | str
    global_batch: int | str
    precision: str
    grad_dtype: str
    master: str
    optimizer: str
    lengths: Sequence[int]
    headroom: float
    memory_margin: float
    beyond_stack: bool
    gpus: int | str

class _Plan(_Job, total=False):
    max_gpus: int | str
    pin: Config
    top: int
    objective: str
    tie: float
    deadline: float
    exhaustive: bool
    tokens: float | str
    price: float | str
    request: Path | Mapping[str, Any]

class _Estimate(_Job, total=False):
    from_megatron: Path
    from_torchtitan: Path
    from_nanotron: Path
    from_deepspeed: Path
    from_maxtext: Path
    from_megatron_bridge: Path
    request: Path | Mapping[str, Any]

class _Schedule(TypedDict, total=False):
    stages: int
    microbatches: int
    chunks: int
    group: int
    slices: int
    placement: str
    backward: str
    objective: str
    deadline: float
    sends: str
    f: float
    i: float
    w: float
    fb: float
    comm: float
    memory_limit: float | Sequence[float]
    costs: Path | Mapping[str, Any]
    request: Path | Mapping[str, Any]
    from_: Path

class Error(Exception):
    code: str | None
    message: str
    status: int
    output: str
    @property
    def answer(self) -> Any: ...

class Report:
    json: str
    def __init__(self, text: str) -> None: ...
    @property
    def data(self) -> dict[str, Any]: ...
    def __getitem__(self, key: str) -> Any: ...
    def __contains__(self, key: str) -> bool: ...
    def keys(self) -> Iterable[str]: ...
    def save(self, path: Path) -> None: ...

class Export:
    target: str
    text: str
    notes: list[dict[str, str]]
    def save(self, path: Path) -> None: ...

class Prediction(Report):
    @property
    def parallel(self) -> dict[str, Any]: ...
    @property
    def step_time(self) -> float: ...
    @property
    def memory(self) -> float: ...
    @property
    def fits(self) -> bool: ...
    def export(self, to: str, *, strict: bool = False, allow: str | Sequence[str] | None = None) -> Export: ...
    def schedule(self) -> Schedule: ...
    def sharding(self) -> dict[str, Any]: ...
    def mesh(self) -> tuple[tuple[str, int], ...]: ...
    # Placements and styles are those of PyTorch.
    def placements(self) -> dict[str, dict[str, Any]]: ...
    def parallelize_plan(self, *, loss_parallel: bool = False, mesh: Any = None) -> dict[str, Any]: ...

class Estimate(Prediction): ...

class Plan(Prediction):
    @property
    def alternatives(self) -> list[dict[str, Any]]: ...
    def why_not(self, pins: Config, *, deadline: float | None = None) -> Report: ...
    def html(self) -> str: ...

class Schedule(Report):
    @property
    def order(self) -> list[list[str]]: ...
    @property
    def bubble(self) -> float: ...
    def ranks(self) -> list[int]: ...
    def csv(self, path: Path | None = None) -> str: ...
    def svg(self) -> str: ...
    def html(self) -> str: ...
    def pipeline_order(self) -> dict[int, list[Any]]: ...
    def runtime(self, stages: Sequence[Any], loss_fn: Any = None, **options: Any) -> Any: ...

def plan(model: Model | None = None, **flags: Unpack[_Plan]) -> Plan: ...
@overload
def estimate(model: Model | None = None, *, parallel: Config | None = None, **flags: Unpack[_Estimate]) -> Estimate: ...
@overload
def estimate(model: Model | None = None, *, parallel: Sequence[Config], **flags: Unpack[_Estimate]) -> list[Estimate | Error]: ...
def schedule(kind: str | None = None, **flags: Unpack[_Schedule]) -> Schedule: ...
def reshard(
    mesh: str | Mapping[str, int],
    shape: str | Sequence[int],
    from_: str,
    to: str,
    *,
    dtype: str = "f32",
    cluster: Path = "cpu",
) -> Report: ...
def diff(*compared: Prediction | Model | Config, **flags: Unpack[_Job]) -> Report: ...
def open(path: Path) -> Plan | Estimate: ...
def models() -> list[dict[str, Any]]: ...
def clusters() -> list[dict[str, Any]]: ...
def stacks() -> list[dict[str, Any]]: ...
def schedules() -> list[dict[str, Any]]: ...
