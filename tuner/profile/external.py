"""Command lines of NVIDIA's own profilers: Nsight Systems for the timeline, Nsight Compute for one kernel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

__all__ = ["nsight_compute", "nsight_systems"]

_NAMES = re.compile(r"\b[A-Za-z_]\w*")
_TYPES = ("void", "unsigned", "signed", "int", "long", "short", "char", "bool", "float", "double", "true", "false")
_MOST_NAMES = 8


def nsight_systems(
    command: Sequence[str], *, output: Path, delay_s: float | None = None, duration_s: float | None = None
) -> tuple[str, ...]:
    """`command` under Nsight Systems, a report a process, so a rank has its own.

    Without delay and duration only what the program itself marks is captured, from cuProfilerStart to cuProfilerStop.
    """
    window: tuple[str, ...] = ()
    if delay_s is not None:
        window += (f"--delay={delay_s:g}",)
    if duration_s is not None:
        window += (f"--duration={duration_s:g}",)
    return (
        "nsys",
        "profile",
        "--trace=cuda,nvtx,osrt,cublas,cudnn",
        "--sample=none",
        "--cuda-graph-trace=node",
        "--force-overwrite=true",
        f"--output={output}-%p",
        *(window or ("--capture-range=cudaProfilerApi", "--capture-range-end=stop")),
        *command,
    )


def nsight_compute(command: Sequence[str], kernel: str, *, output: Path) -> tuple[str, ...]:
    """`command` under Nsight Compute, for one kernel: a few of its launches, after those that warm up."""
    return (
        "ncu",
        "--set=full",
        "--target-processes=all",
        *_named(kernel),
        "--launch-skip=3",
        "--launch-count=3",
        f"--export={output}",
        *command,
    )


def _named(kernel: str) -> tuple[str, ...]:
    """What tells it from others. By default Nsight Compute knows a function without result, namespaces, template
    arguments and parameters, which in libraries many kernels share. It writes some arguments otherwise than a trace
    does, so of those the names count, in their order."""
    if kernel.startswith("_Z"):
        return "--kernel-name-base=mangled", f"--kernel-name=regex:^{re.escape(kernel)}$"
    if "<" not in kernel.split("(")[0]:
        bare = kernel.split("(")[0].split(" ")[-1].rsplit("::", 1)[-1]
        return (f"--kernel-name=regex:^{re.escape(bare)}$",)
    names = [name for name in _NAMES.findall(kernel.split(">(")[0]) if name not in _TYPES]
    return "--kernel-name-base=demangled", f"--kernel-name=regex:{'.*'.join(names[:_MOST_NAMES])}"
