"""Which operations read what others write, and whether an attribution of kernels agrees with it: no operation begins
before what it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from tuner.profile.costs import launches_nothing
from tuner.profile.hlo import Computation, Module
from tuner.profile.timeline import Event

__all__ = ["Producers", "Unit", "doubtful", "producers"]

U = TypeVar("U", bound=Hashable)

Producers = Mapping[tuple[str, str], frozenset[str]]
"""(module, operation) → the operations of its computation that it reads."""

Unit = tuple[int, tuple[str, str]]
"""What is believed or isn't: an operation in a group that was found as one."""

_Compared = list[tuple[Unit, Unit, bool]]  # a reader, a producer, and whether they began in this order
_Runs = list[dict[int, tuple[float, float]]]  # of one operation, run by run: group → when its kernels first, last began

_OFTEN = 0.2


def producers(modules: Mapping[str, Module]) -> Producers:
    """Seen through what launches nothing, such as tuples and bitcasts; what comes out of a loop or a branch isn't."""
    found: dict[tuple[str, str], frozenset[str]] = {}
    for module in modules.values():
        for name in set(module.owners.values()):
            found |= {(module.name, op): read for op, read in _within(module.computations[name]).items()}
    return found


def _within(computation: Computation) -> dict[str, frozenset[str]]:
    """Of each operation; those that it reads stand before it in a schedule."""
    behind: dict[str, frozenset[str]] = {}
    reads: dict[str, frozenset[str]] = {}
    for name, instruction in computation.instructions.items():
        read = frozenset[str]().union(*(behind.get(operand, ()) for operand in instruction.operands))
        if not launches_nothing(instruction):
            reads[name] = read
            behind[name] = frozenset([name])
        else:
            behind[name] = frozenset() if instruction.opcode in ("while", "conditional", "call") else read
    return reads


def doubtful(given: Sequence[tuple[int, Event, Event]], reads: Producers) -> set[Unit]:
    """What can't be believed. `given`: group, kernel and an event of the kernel's operation, in the order of the
    program. As long as operations begin before what they read, that goes which is in such disagreements most often,
    for its size: whole groups, then single operations."""
    compared = _compared(given, reads)
    groups = _odd([(one[0], other[0], right) for one, other, right in compared], least=_OFTEN)
    single = _odd([pair for pair in compared if not {pair[0][0], pair[1][0]} & groups], least=0.0)
    return single | {(group, (by.module, by.op)) for group, _, by in given if group in groups}


def _odd(compared: Sequence[tuple[U, U, bool]], *, least: float) -> set[U]:
    """What is wrong in more than `least` of its comparisons, the worst first; those with it no longer count then."""
    gone: set[U] = set()
    while True:
        left = [pair for pair in compared if not gone & {*pair[:2]}]
        wrong = Counter(one for *pair, right in left if not right for one in {*pair})
        every = Counter(one for *pair, _ in left for one in {*pair})
        most = max((wrong[one] / every[one] for one in wrong), default=0.0)
        if most <= least:
            return gone
        gone |= {one for one in wrong if wrong[one] / every[one] == most}


def _compared(given: Sequence[tuple[int, Event, Event]], reads: Producers) -> _Compared:
    """Each run of an operation with those of what it reads that belong to it: of operations that run equally often."""
    runs: dict[tuple[str, str], _Runs] = {}
    last: tuple[str, str] | None = None
    for group, kernel, by in given:
        operation = (by.module, by.op)
        of = runs.setdefault(operation, [])
        if operation != last:
            of.append({})
        first, final = of[-1].get(group, (kernel.start, kernel.start))
        of[-1][group] = (min(first, kernel.start), max(final, kernel.start))
        last = operation
    return [
        ((one, reader), (other, producer), begins >= begun)
        for reader, of in runs.items()
        for producer in ((reader[0], name) for name in reads.get(reader, ()))
        if len(before := runs.get(producer, [])) == len(of)
        for here, there in zip(of, before, strict=True)
        for one, (begins, _) in here.items()
        for other, (_, begun) in there.items()
    ]
