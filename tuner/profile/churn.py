"""Functions that are compiled again and again because what they are called with, or they themselves, are ever new."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.profile.types import Finding
from tuner.protocol.messages import Recompiled

__all__ = ["churn"]

_SHAPES = 4  # of a step, from which on it is asked whether ever more come
_OF_OTHERS = 3
_MATTERS_S = 1.0  # in the compiler, before the first step
_TOLD = 4
_CURES = {
    "shapes": "pad to a few sizes, or make what changes an array instead of a shape",
    "jits": "jit it once, outside the loop",
}


def churn(found: Sequence[Recompiled]) -> tuple[Finding, ...]:
    """What is compiled ever anew, the slowest first, and, of a step with a few shapes, which one is tuned.

    A program may well have some shapes; the sign of trouble is that new ones still come: half of the later half of the
    calls had to be compiled for, and more than a few did in all.
    """
    ranked = sorted(found, key=lambda one: (not one.step, -one.seconds))
    return tuple(finding for one in ranked if (finding := _finding(one)) is not None)[:_TOLD]


def _finding(one: Recompiled) -> Finding | None:
    if not one.calls:
        return _by_place(one)
    goes_on = 2 * one.late >= one.calls - one.calls // 2
    if goes_on and one.compiles >= (_SHAPES if one.step else _OF_OTHERS) and (one.step or one.inside >= 2):
        jitted_anew = one.compiles > one.shapes
        what = "jitted anew" if jitted_anew else "called with new shapes"
        text = (
            f"{one.name} is {what} again and again: {one.compiles} compiles in {one.calls} calls, "
            f"{one.seconds:.2g} s{f' ({one.differs})' if one.differs else ''}. No setting makes up for that: "
            f"{_CURES['jits' if jitted_anew else 'shapes']}"
        )
        return Finding(kind="shapes", text=text, where=one.where)
    if one.step and one.shapes > 1:
        text = (
            f"{one.name} was called with {one.shapes} shapes in {one.calls} calls ({one.differs}). "
            f"One is tuned{f', {one.tuned}' if one.tuned else ''}; what is found acts on the others unmeasured"
        )
        return Finding(kind="variants", text=text, where=one.where)
    return _by_place(one)


def _by_place(one: Recompiled) -> Finding | None:
    if one.step or one.compiles < _SHAPES or one.seconds < _MATTERS_S:
        return None
    text = f"{one.name} was compiled {one.compiles} times before the step first ran, {one.seconds:.2g} s of every start"
    return Finding(kind="start", text=f"{text}{f' ({one.differs})' if one.differs else ''}", where=one.where)
