"""Where a step's time goes: every moment of every traced step belongs to one kind of work, or to a gap."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, median

from tuner.profile.attribution import coverage
from tuner.profile.categories import CATEGORIES, Category
from tuner.profile.hlo import Module
from tuner.profile.intervals import Interval, clipped, gaps, intersection, length, shares
from tuner.profile.scopes import scope_path
from tuner.profile.timeline import Event, Timeline
from tuner.profile.types import Breakdown, KernelRow, OpRow, ScopeRow

__all__ = ["HOST_GAPS", "LAUNCH_GAPS", "break_down"]

HOST_GAPS = "host gaps"
LAUNCH_GAPS = "launch gaps"

_LAUNCH_NS = 20_000.0  # a pause this short between two kernels is the launch itself
_NS = 1e6  # in a millisecond
_RANKS = {
    "collective": 1,
    "copy host to device": 2,
    "copy device to host": 2,
    "copy on device": 2,
    "loop control": 3,
}
"""Who a moment belongs to if several are active: work first, then what work may hide."""

_REGISTERS = re.compile(r"\bregs:(\d+)")
_OCCUPANCY = re.compile(r"\bocc_pct:([\d.]+)")
_KNOWN = 0.5  # of device time
_MOST_KERNELS, _MOST_SCOPES = 30, 60
_Key = tuple[str, str, bool]  # module, operation or kernel, whether it is an operation


def break_down(line: Timeline, modules: Mapping[str, Module]) -> Breakdown:
    """The breakdown of a timeline, with a row for every operation. Without step marks, or without any work in them, its
    parts are one host gap."""
    steps = line.steps or ((0.0, 0.0),)
    whole = fmean(end - start for start, end in steps)
    tally = _Tally(modules)
    for events in line.devices.values():
        for step in steps:
            tally.add(step, [e for e in events if step[0] <= (e.start + e.end) / 2 < step[1]])
    runs = max(1, len(line.devices)) * len(steps)
    if not line.devices:
        tally.parts[HOST_GAPS] = whole * runs
    marks = [e for e in line.host if any(s <= e.start < t for s, t in steps)]
    compiles = [e for e in marks if e.name.startswith("backend_compile")]
    leaves = tally.leaves
    order = [*CATEGORIES, LAUNCH_GAPS, HOST_GAPS]
    return Breakdown(
        platform=line.platform,
        steps=len(line.steps),
        devices=len(line.devices),
        step_ms=whole / _NS,
        traced_ms=whole / _NS,
        parts={name: tally.parts[name] / runs / _NS for name in order if tally.parts.get(name)},
        busy_ms=tally.busy / runs / _NS,
        hidden_ms=tally.hidden / runs / _NS,
        exposed_ms=tally.parts.get("collective", 0.0) / runs / _NS,
        stalls_ms=tally.stalls / runs / _NS,
        compiles=len(compiles),
        compile_ms=sum(e.end - e.start for e in compiles) / _NS,
        kernels=len(leaves) / runs,
        kernel_us=median(e.end - e.start for e in leaves) / 1e3 if leaves else 0.0,
        graphs=sum(e.graph for e in leaves) / len(leaves) if leaves else 0.0,
        attributed=coverage(line),
        ops=tally.ops(runs=runs, whole=whole),
        by_kernel=tally.kernels(runs=runs, whole=whole) if line.platform != "cpu" else (),
        scopes=tally.scopes(runs=runs, whole=whole),
        note=_note(line),
    )


class _Tally:
    """Sums over steps and devices, ns."""

    def __init__(self, modules: Mapping[str, Module]) -> None:
        self._modules = modules
        self.parts: dict[str, float] = {}
        self.busy = 0.0
        self.hidden = 0.0
        self.stalls = 0.0
        self.leaves: list[Event] = []
        self._own: dict[_Key, float] = {}
        self._kernels: dict[tuple[Category, str], float] = {}
        self._total: dict[_Key, float] = {}
        self._calls: dict[_Key, int] = {}
        self._samples: dict[_Key, dict[str, tuple[float, Event]]] = {}

    def add(self, step: Interval, events: Sequence[Event]) -> None:
        """One step on one device."""
        inside = [(cut[0], e) for e in events if (cut := clipped([e.interval], step))]
        self.leaves += [e for e in events if not e.control]
        owned = [(interval, (e.category, _key(e), e.name)) for interval, e in inside]
        ranks = {owner: _RANKS.get(owner[0], 0) for _, owner in owned}
        for (category, own, kernel), mine in shares(owned, rank=ranks).items():
            self.parts[category] = self.parts.get(category, 0.0) + mine
            self._own[own] = self._own.get(own, 0.0) + mine
            self._kernels[category, kernel] = self._kernels.get((category, kernel), 0.0) + mine
        busy = [interval for interval, _ in inside]
        self.busy += length(busy)
        work = [i for i, e in inside if not _RANKS.get(e.category, 0)]
        collective = [i for i, e in inside if e.category == "collective"]
        self.hidden += length(intersection(collective, work))
        for start, end in gaps(step, busy):
            edge = start == step[0] or end == step[1]
            name = LAUNCH_GAPS if end - start <= _LAUNCH_NS and not edge else HOST_GAPS
            self.parts[name] = self.parts.get(name, 0.0) + end - start
            self.stalls += end - start if name == HOST_GAPS and not edge else 0.0
        self._count(inside)

    def _count(self, inside: Sequence[tuple[Interval, Event]]) -> None:
        by_key: dict[_Key, list[Interval]] = {}
        for interval, event in inside:
            key = _key(event)
            by_key.setdefault(key, []).append(interval)
            self._calls[key] = self._calls.get(key, 0) + 1
            kernels = self._samples.setdefault(key, {})
            kernels[event.name] = (kernels.get(event.name, (0.0,))[0] + event.end - event.start, event)
        for key, own in by_key.items():
            below = [i for name in self._below(key) for i in by_key.get((key[0], name, True), ())]
            self._total[key] = self._total.get(key, 0.0) + length([*own, *below])

    def _below(self, key: _Key) -> set[str]:
        """What a loop, a branch or a call runs."""
        module = self._modules.get(key[0])
        instruction = module.instruction(key[1]) if module and self._main(key).control else None
        return {i.name for i in module.below(instruction)} if module and instruction else set()

    def ops(self, *, runs: int, whole: float) -> tuple[OpRow, ...]:
        """Every operation, those first that take longest, themselves or with what they run."""
        rows = [self._row(key, runs=runs, whole=whole) for key in self._samples]
        return tuple(sorted(rows, key=lambda row: (-row.self_ms, -row.total_ms, row.name)))

    def _main(self, key: _Key) -> Event:
        """Of the kernels that an operation runs, the one that takes longest."""
        return max(self._samples[key].values(), key=lambda sample: sample[0])[1]

    def _row(self, key: _Key, *, runs: int, whole: float) -> OpRow:
        event = self._main(key)
        own = self._own.get(key, 0.0)
        registers, occupancy = _launch(event)
        return OpRow(
            name=key[1],
            category=event.category,
            calls=self._calls[key] / runs,
            self_ms=own / runs / _NS,
            total_ms=self._total[key] / runs / _NS,
            share=own / runs / whole if whole else 0.0,
            scope="/".join(scope_path(event.scope)),
            source=event.source,
            registers=registers,
            occupancy=occupancy,
            op=key[2],
            module=key[0],
            kernel="" if event.name == key[1] else event.name,
        )

    def kernels(self, *, runs: int, whole: float) -> tuple[KernelRow, ...]:
        """The kernels that take longest; nothing if none runs for more than one operation."""
        events = [event for event in self.leaves if event.op]
        served: dict[str, set[_Key]] = {}
        for event in events:
            served.setdefault(event.name, set()).add(_key(event))
        if all(len(keys) == 1 for keys in served.values()):
            return ()
        samples = {event.name: event for event in self.leaves}
        calls = Counter(event.name for event in self.leaves)
        rows = [
            KernelRow(
                name=name,
                category=category,
                ops=len(served.get(name, ())),
                calls=calls[name] / runs,
                self_ms=own / runs / _NS,
                share=own / runs / whole if whole else 0.0,
                registers=_launch(samples[name])[0],
                occupancy=_launch(samples[name])[1],
            )
            for (category, name), own in self._kernels.items()
            if name in samples
        ]
        return tuple(sorted(rows, key=lambda row: (-row.self_ms, row.name))[:_MOST_KERNELS])

    def scopes(self, *, runs: int, whole: float) -> tuple[ScopeRow, ...]:
        """Every scope with what is in it; `total_ms` includes inner scopes. Nothing if no work is in any."""
        own: dict[tuple[str, ...], float] = {}
        for key, mine in self._own.items():
            path = scope_path(self._main(key).scope)
            own[path] = own.get(path, 0.0) + mine
        if not any(own):
            return ()
        paths = {path[:depth] for path in own for depth in range(1, len(path) + 1)} | ({()} & own.keys())
        rows = []
        for path in paths:
            total = sum(m for p, m in own.items() if p[: len(path)] == path) if path else own[()]
            rows.append(
                ScopeRow(
                    name="/".join(path) or "(none)",
                    self_ms=own.get(path, 0.0) / runs / _NS,
                    total_ms=total / runs / _NS,
                    share=total / runs / whole if whole else 0.0,
                )
            )
        return tuple(sorted(rows, key=lambda row: (-row.total_ms, row.name))[:_MOST_SCOPES])


def _launch(event: Event) -> tuple[int | None, float | None]:
    """Registers of a thread, and occupancy, where the trace has them."""
    registers, occupancy = _REGISTERS.search(event.details), _OCCUPANCY.search(event.details)
    return int(registers.group(1)) if registers else None, float(occupancy.group(1)) / 100 if occupancy else None


def _key(event: Event) -> _Key:
    return (event.module, event.op, True) if event.op else ("", event.name, False)


def _note(line: Timeline) -> str:
    if line.platform != "cpu":
        if not line.devices:
            return "the trace holds no device work"
        return "" if coverage(line) >= _KNOWN else "kernels inside CUDA graphs tell their kinds, not their operations"
    return (
        "a CPU's trace has operations and nothing below: library fusions are opaque, operations run on several threads "
        "at once (a moment is shared among those active), and there are no counters of memory or occupancy"
    )
