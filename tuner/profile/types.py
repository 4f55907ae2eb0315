"""What a profile says: where a step's time goes, operation by operation, how far from the roof it is, and why."""

from __future__ import annotations

from typing import Literal

import msgspec

from tuner.profile.categories import Category

__all__ = [
    "Bound",
    "Breakdown",
    "Ceiling",
    "Finding",
    "KernelRow",
    "OpRow",
    "PartRow",
    "RankRow",
    "Roofline",
    "ScopeRow",
    "StepProfile",
]

Bound = Literal["compute", "memory", "latency", "launch", "communication", "host", "unknown"]
"""What holds a step, or an operation, back most."""


class OpRow(msgspec.Struct, frozen=True, kw_only=True):
    """An operation (a kernel, where its operation isn't known), per step and device.

    `calls`: kernels, of which an operation may run several. `self_ms`: the time that is its own where several run at
    once; `total_ms`: while it or what it runs was active. `share`: of the step. `flops`, `bytes`: None where they
    aren't known. `roof`: share of the roof that it reaches, `bound` by what. `op`: False for a kernel. `kernel`: the
    name that the trace has for it, if that is another, of several the one that takes longest: kind, registers and
    occupancy are its. `module`: the program that it is of.
    """

    name: str
    category: Category
    calls: float
    self_ms: float
    total_ms: float
    share: float
    scope: str = ""
    source: str = ""
    registers: int | None = None
    occupancy: float | None = None
    flops: float | None = None
    bytes: float | None = None
    roof: float | None = None
    bound: Bound = "unknown"
    op: bool = True
    kernel: str = ""
    module: str = ""


class KernelRow(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel, per step and device, over all operations (`ops` of them) that it runs for. The rest as in `OpRow`."""

    name: str
    category: Category
    ops: int
    calls: float
    self_ms: float
    share: float
    registers: int | None = None
    occupancy: float | None = None


class ScopeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A named scope. `name`: its path, "(none)" for what is in none. `self_ms`: without inner scopes."""

    name: str
    self_ms: float
    total_ms: float
    share: float


class Breakdown(msgspec.Struct, frozen=True, kw_only=True):
    """Where a step's time goes, ms, means over the traced steps and devices. `parts` sum to `step_ms`: kinds of work
    with something to show for it, exposed collectives and copies, launch gaps (short, between operations), host gaps
    (long, and before the first and after the last operation).

    `step_ms`: of consecutive steps without a trace, where they were timed; `traced_ms`: of a step in the trace, which
    the tracer makes longer; `under_ms`: of consecutive steps in there, 0 where they weren't timed. `tracer_ms`: what it
    added to work itself, taken out of kernels by their thread blocks. `scale`: what the trace's times of work were
    multiplied by after that to fit the step. `hidden_ms`: collectives while something else ran. `stalls_ms`: host gaps
    between a traced step's first and last operation. `dispatch_ms`: what the host takes to call a step, without a trace
    and with nothing on the device. `compiles`: in all traced steps. `kernels`:
    operations a step; `kernel_us`: their median. `graphs`: share of them in CUDA graphs. `attributed`: share of device
    time whose operation is known. `ops`: those that take longest, and one row for all others. `by_kernel`: the kernels
    that take longest, where there are fewer of them than operations. `doubt`: why trace and clock can't be of one step,
    so that shares of it say little; "" if they can.
    """

    platform: str
    steps: int
    devices: int
    step_ms: float
    parts: dict[str, float]
    busy_ms: float
    traced_ms: float = 0.0
    under_ms: float = 0.0
    tracer_ms: float = 0.0
    scale: float = 1.0
    hidden_ms: float = 0.0
    exposed_ms: float = 0.0
    stalls_ms: float = 0.0
    dispatch_ms: float = 0.0
    compiles: int = 0
    compile_ms: float = 0.0
    kernels: float = 0.0
    kernel_us: float = 0.0
    graphs: float = 0.0
    attributed: float = 1.0
    ops: tuple[OpRow, ...] = ()
    by_kernel: tuple[KernelRow, ...] = ()
    scopes: tuple[ScopeRow, ...] = ()
    note: str = ""
    doubt: str = ""


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """A rank of a gang, ms per step, on its devices' average. `step_ms`, `traced_ms`, `busy_ms`, `exposed_ms` and
    `hidden_ms` as in `Breakdown`; `work_ms`: at work on anything but exposed collectives; `gaps_ms`: at nothing.
    `waits_ms`: rank → waiting for it in collectives, where nothing else ran; `collective`: the one it is in longest."""

    rank: int
    step_ms: float
    traced_ms: float
    busy_ms: float
    work_ms: float
    gaps_ms: float
    exposed_ms: float = 0.0
    hidden_ms: float = 0.0
    waits_ms: dict[int, float] = {}
    collective: str = ""


class PartRow(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a workload of several: ms of one, how often a unit of its work runs it (`weight`), and what `share` of
    the unit's time that is."""

    name: str
    ms: float
    weight: float
    share: float


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """What the device can do at most: FLOP/s of matrix products by element type, bytes/s. `unsteady`: those that
    repeats did not agree on, by name ("memory" for the bytes): something else ran on the device or its host."""

    flops_per_s: dict[str, float]
    bytes_per_s: float
    unsteady: tuple[str, ...] = ()


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """Of a step on one device. `share`: of the time at work, how much the roof alone would take; None without ceilings.
    `at_least_ms`: that time. `note`: what the counts leave out."""

    flops: float
    bytes: float
    share: float | None = None
    at_least_ms: float | None = None
    ceiling: Ceiling | None = None
    note: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that no setting can mend, or that says which settings to try. `kind`: a word for programs. `where`:
    file and line, as far as known. `groups`: knob groups that act on it, the best guess first."""

    kind: str
    text: str
    where: str = ""
    groups: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """On one line."""
        return f"{self.text} ({self.where})" if self.where else self.text


class StepProfile(msgspec.Struct, frozen=True, kw_only=True):
    """`bound`: the verdict on the step; `evidence`: the numbers behind it. `files`: what was kept, by name. `ranks`: of
    a gang, where all else is rank 0's. `compile_s`: what lowering and compiling the step took, 0 where it isn't known.
    `parts`: of a workload of several steps each one; all else is of one run of each, whatever their weights.
    """

    breakdown: Breakdown
    roofline: Roofline
    bound: Bound
    evidence: str
    findings: tuple[Finding, ...] = ()
    files: dict[str, str] = {}
    compile_s: float = 0.0
    ranks: tuple[RankRow, ...] = ()
    parts: tuple[PartRow, ...] = ()
