"""Settings that are compared: a program, its options and its environment."""

import shutil
from dataclasses import dataclass, field

# glibc returns large blocks to the system and gets them again, zeroed, in each step; these variables make it reuse them.
REUSE = dict(MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_=str(1 << 40), MALLOC_ARENA_MAX="1")
TORCH, JAX, MESHWRIGHT = "PyTorch", "JAX", "Meshwright"


@dataclass(frozen=True)
class Setting:
    """A program with options. `against` names the settings of Meshwright whose least time is the ratio's divisor."""

    program: str
    text: str
    precision: str = "f32"
    options: dict = field(default_factory=dict)
    environment: dict = field(default_factory=dict)
    devices: int = 1
    # The ZeRO stage of Meshwright.
    zero: int = 0
    # True if a version or a processor may lack it. A failure is then a reason for its absence, and no error.
    optional: bool = False
    # A flag of the processor that it needs.
    instructions: str = ""
    # Why no machine can run it.
    absent: str = ""

    @property
    def name(self):
        """What `--only` selects by and the table shows."""
        return f"{self.program}, {self.text}"

    @property
    def against(self):
        """The devices and the precision of the setting of Meshwright that it is compared with."""
        return (8 if self.devices == 8 else 1, self.precision)


def xla(text, *flags, **rest):
    """A setting of JAX with flags of XLA."""
    return Setting(JAX, text, environment=dict(XLA_FLAGS=" ".join(f"--xla_{flag}" for flag in flags)), **rest)


# By default jaxlib calls YNNPACK for products. Without it, XLA calls Eigen, or a library that is switched on.
NO_YNN = "cpu_experimental_ynn_fusion_type="
XNN = "cpu_experimental_xnn_fusion_type=LIBRARY_FUSION_TYPE_DOT"
ONEDNN = ["cpu_use_onednn=true", "cpu_experimental_onednn_fusion_type=LIBRARY_FUSION_TYPE_DOT"]

SETTINGS = [
    Setting(MESHWRIGHT, "`dp=1`"),
    Setting(MESHWRIGHT, "`dp=2`", devices=2),
    Setting(MESHWRIGHT, "`dp=8`", devices=8),
    Setting(MESHWRIGHT, "`dp=8,zero=1`", devices=8, zero=1),
    Setting(MESHWRIGHT, "`dp=1`, bf16", precision="bf16"),
    Setting(TORCH, "eager"),
    Setting(TORCH, "eager, oneDNN off", options=dict(onednn=False)),
    Setting(TORCH, "eager, memory reused", environment=REUSE),
    Setting(TORCH, "compile", options=dict(compile="default")),
    Setting(TORCH, "compile max-autotune", options=dict(compile="max-autotune")),
    Setting(TORCH, "compile max-autotune, memory reused", options=dict(compile="max-autotune"), environment=REUSE),
    Setting(
        TORCH, "eager, products in bf16 by oneDNN", precision="bf16", options=dict(products="bf16"), instructions="avx512_bf16"
    ),
    Setting(TORCH, "eager, bf16", precision="bf16"),
    Setting(TORCH, "compile max-autotune, bf16", precision="bf16", options=dict(compile="max-autotune")),
    Setting(JAX, "jit"),
    xla("jit, products by Eigen", NO_YNN, optional=True),
    xla("jit, products by oneDNN", NO_YNN, *ONEDNN, options=dict(expects="__onednn"), optional=True),
    xla("jit, products by XNNPACK", NO_YNN, XNN, options=dict(expects="__xnn"), optional=True),
    xla("jit, fast math", "cpu_enable_fast_math=true", optional=True),
    xla("jit, preset fast runtime", "cpu_opt_preset=CPU_OPT_PRESET_FAST_RUNTIME", optional=True),
    Setting(JAX, "jit, thunk runtime off", absent="`xla_cpu_use_thunk_runtime` is deprecated and changes nothing"),
    xla("jit, 8 devices", "force_host_platform_device_count=8", options=dict(devices=8), devices=8),
    Setting(JAX, "jit, bf16", precision="bf16"),
]


def reason_against(setting, case, flags):
    """Why a setting cannot run here; none if it can. `flags` are those of the processor."""
    if setting.absent:
        return setting.absent
    if case.batch % setting.devices:
        return f"{case.batch} sequences do not divide over {setting.devices} devices"
    if setting.instructions and setting.instructions not in flags:
        return f"the processor has no {setting.instructions}"
    if "compile" in setting.options and not shutil.which("g++"):
        return "torch.compile needs g++"
    return None
