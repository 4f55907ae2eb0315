"""Command lines of NVIDIA's own profilers: Nsight Systems for the timeline, Nsight Compute for one kernel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

__all__ = ["nsight_compute", "nsight_systems"]


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
        f"--kernel-name=regex:^{re.escape(_base(kernel))}$",
        "--launch-skip=3",
        "--launch-count=3",
        f"--export={output}",
        *command,
    )


def _base(kernel: str) -> str:
    """The function's name as Nsight Compute matches it: without result, namespaces, template arguments, parameters."""
    return kernel.split("(")[0].split("<")[0].split(" ")[-1].rsplit("::", 1)[-1]
