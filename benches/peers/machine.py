"""The processor and the versions of all programs: what a measurement depends on besides its setting."""

import importlib.metadata
import os
import platform
import subprocess

# Flags that decide which kernels a program has, in the names of Linux.
INSTRUCTIONS = ["avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve"]


def processor():
    """Name and flags of the processor."""
    name, flags = platform.processor() or "a processor without a name", set()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            for line in file:
                key, _, value = (part.strip() for part in line.partition(":"))
                name = value if key == "model name" else name
                flags.update(value.split() if key in ("flags", "Features") else [])
    return name, flags


def versions(binary):
    """Meshwright, PyTorch and JAX with their versions."""
    own = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    profile = os.path.basename(os.path.dirname(os.path.abspath(binary)))
    found = [f"Meshwright {own} (profile `{profile}`)"]
    for package in ("torch", "jax", "jaxlib"):
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def description(binary, cores):
    """The processor and the versions, as a table states them: what all its results must share."""
    name, flags = processor()
    known = ", ".join(flag for flag in INSTRUCTIONS if flag in flags)
    return f"{len(cores)} cores of {name} ({known}): {versions(binary)}"
