"""The work that a compiled program gives its device, in the order of its schedule: where no trace names operations, it
stands in for one.

Fusions launch kernels that are named after them, copies are copies; of what libraries do the kind is known alone. A
loop runs as often as is written down, else once; of a branch each side is expected.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from tuner.profile.categories import Category, category_of, family
from tuner.profile.costs import launches_nothing
from tuner.profile.hlo import FUSIONS, Computation, Instruction, Module
from tuner.profile.timeline import Event

__all__ = ["COPY", "scheduled", "stem"]

COPY = "memcpy"
"""What copies are called here."""

_MOST = 50_000  # of a loop with a great many turns the first must do
_NUMBER = re.compile(r"[._]\d+$")


def scheduled(modules: Mapping[str, Module], *, kernels: Collection[str] = ()) -> tuple[Event, ...]:
    """An event for each operation that does something, one after another, without times, by the stem of its name or,
    where a library does it, its kind of work. `kernels`: the stems that a trace has: a fusion that takes or writes a
    slice, and has no kernel, is done by a copy."""
    found: list[Event] = []
    for module in modules.values():
        if module.entry in module.computations:
            for event in _walk(module, module.computations[module.entry], kernels):
                if len(found) >= _MOST:
                    break
                found.append(event)
    return tuple(found)


def stem(name: str) -> str:
    """What an operation and its kernel have in common: equal operations share the kernel of one of them."""
    bare = name.replace("-", "_")
    while (shorter := _NUMBER.sub("", bare)) != bare:
        bare = shorter
    return bare.replace(".", "_")


def _walk(module: Module, computation: Computation, kernels: Collection[str]) -> Iterator[Event]:
    for instruction in computation.instructions.values():
        if bodies := module.bodies(instruction):
            for _ in range(instruction.trips or 1):
                for body in bodies:
                    yield from _walk(module, body, kernels)
        elif not launches_nothing(instruction):
            category = category_of(module, instruction)
            yield Event(
                name=_expected(module, instruction, category, kernels),
                start=0.0,
                end=0.0,
                op=instruction.name,
                module=module.name,
                category=category,
                scope=instruction.op_name,
                source=instruction.source,
            )


def _expected(module: Module, instruction: Instruction, category: Category, kernels: Collection[str]) -> str:
    """What its kernel is called."""
    if instruction.opcode in ("copy", "copy-start"):
        return COPY
    if instruction.opcode in ("custom-call", "fft") or category == "collective":
        return family(category)
    name = stem(instruction.name)
    return COPY if name not in kernels and _slices(module, instruction) else name


def _slices(module: Module, instruction: Instruction) -> bool:
    """Whether a fusion's result is a slice, or something with a slice written into it."""
    fused = next(
        (module.computations[n] for n in instruction.called.get("calls", ()) if n in module.computations), None
    )
    result = fused.root if fused is not None and instruction.opcode in FUSIONS else None
    while fused is not None and result is not None and result.opcode == "bitcast":
        result = next(iter(fused.operands(result)), None)
    return result is not None and result.opcode in ("slice", "dynamic-slice", "dynamic-update-slice")
