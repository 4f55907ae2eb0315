"""A trace as typed events on one clock: the steps, what each device did in them, and what the host did meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tuner.profile.categories import COPIES, Category, category_of, is_control, kernel_category
from tuner.profile.hlo import Instruction, Module
from tuner.profile.intervals import Interval
from tuner.protocol.messages import TraceLabel, TraceLine

__all__ = ["Event", "Timeline", "timeline"]

_STEP = "tune_step"
_DEVICE = "/device:"
_HOST_DEVICE = "cpu"
_GRAPH = "CudaGraph"  # a whole graph, beside the kernels in it or in place of them


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that took time, ns. `op`: the HLO operation, "" if none is known. `control`: a loop, branch or call.
    `scope`: the names of what was traced, as jax joins them. `source`: file and line. `launched`: its place in the
    order in which the device was given its work, -1 where that isn't known."""

    name: str
    start: float
    end: float
    op: str = ""
    module: str = ""
    category: Category = "other"
    scope: str = ""
    source: str = ""
    details: str = ""
    control: bool = False
    graph: bool = False
    launched: int = -1

    @property
    def interval(self) -> Interval:
        return self.start, self.end


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """`steps`: when each began and ended. `devices`: device → its events, by start. `host`: calls and compiles;
    `functions`: Python functions, where they were traced."""

    platform: str
    steps: tuple[Interval, ...]
    devices: dict[str, tuple[Event, ...]]
    host: tuple[Event, ...] = ()
    functions: tuple[Event, ...] = ()


def timeline(labels: Sequence[TraceLabel], lines: Sequence[TraceLine], modules: Mapping[str, Module]) -> Timeline:
    """The trace as events. Where devices have planes of their own, what they did is there; on a CPU it is operations
    that the host's threads ran, each for one of its devices. `modules`: by name; a trace may hold other modules too."""
    on_device = any(line.plane.startswith(_DEVICE) for line in lines)
    known = _Kinds(labels, modules, kernels=on_device)
    steps: list[Interval] = []
    devices: dict[str, list[Event]] = {}
    host: list[Event] = []
    functions: list[Event] = []
    for line in lines:
        of_device = line.plane.startswith(_DEVICE)
        order = line.launched or (-1,) * len(line.labels)
        for number, start, lasts, place in zip(line.labels, line.starts_ns, line.durations_ns, order, strict=True):
            label = labels[number]
            event = msgspec.structs.replace(known.event(number), start=start, end=start + lasts, launched=place)
            if of_device or (label.op and not on_device):
                devices.setdefault(line.plane if of_device else f"{_HOST_DEVICE} {label.device}", []).append(event)
            elif label.name == _STEP:
                steps.append(event.interval)
            elif label.name.startswith("$"):
                functions.append(event)
            else:
                host.append(event)
    return Timeline(
        platform="gpu" if on_device else "cpu",
        steps=tuple(sorted(steps)),
        devices={name: tuple(sorted(of, key=lambda e: e.start)) for name, of in sorted(devices.items())},
        host=tuple(sorted(host, key=lambda e: e.start)),
        functions=tuple(sorted(functions, key=lambda e: e.start)),
    )


class _Kinds:
    """What each label's events are: worked out once. `kernels`: they are of a device, where nothing but a whole graph
    contains others; else they are operations, and a loop contains what it runs."""

    def __init__(self, labels: Sequence[TraceLabel], modules: Mapping[str, Module], *, kernels: bool) -> None:
        self._labels = labels
        self._of_device = kernels
        self._modules = modules
        self._made: dict[int, Event] = {}
        self._kernels = {
            _kernel_name(name): (module, instruction)
            for module in modules.values()
            for name in module.owners
            if (instruction := module.instruction(name)) is not None
        }

    def event(self, number: int) -> Event:
        """An event of this label, without its times."""
        if number not in self._made:
            self._made[number] = self._make(self._labels[number])
        return self._made[number]

    def _make(self, label: TraceLabel) -> Event:
        if label.name.startswith(_GRAPH):
            return Event(name=label.name, start=0.0, end=0.0, category="loop control", control=True, graph=True)
        base = Event(
            name=label.name,
            start=0.0,
            end=0.0,
            module=label.module,
            scope=label.scope.split(":")[0],
            details=label.details,
            graph=label.graph,
            category=kernel_category(label.name),
        )
        copies = base.category in COPIES
        found = self._find(label)
        alike = self._kernels.get(_kernel_name(label.name))
        if label.graph and (found is None or is_control(found[1].opcode)):
            # A graph gives its own name to every kernel in it, and one kernel may serve several operations that are
            # alike: it tells their kind.
            return msgspec.structs.replace(base, category=category_of(*alike)) if alike and not copies else base
        found = found or (None if label.op else alike)
        if found is None:
            return msgspec.structs.replace(base, op=label.op)
        module, instruction = found
        known = msgspec.structs.replace(
            base,
            op=instruction.name,
            module=module.name,
            scope=instruction.op_name or base.scope,
            source=instruction.source,
        )
        if self._of_device and is_control(instruction.opcode):
            return known  # a loop's launch gives its name to the test whether it goes on
        return msgspec.structs.replace(
            known,
            category=base.category if copies else category_of(module, instruction),
            control=is_control(instruction.opcode),
        )

    def _find(self, label: TraceLabel) -> tuple[Module, Instruction] | None:
        """The operation that the trace names."""
        module = self._modules.get(label.module)
        for op in reversed(label.op.split(",")):  # the innermost comes last
            for candidate in [module] if module else self._modules.values():
                if candidate is not None and (instruction := candidate.instruction(op.strip())):
                    return candidate, instruction
        return None


def _kernel_name(name: str) -> str:
    """The name that a kernel made for an operation gets: points and dashes become underscores."""
    return name.replace(".", "_").replace("-", "_")
