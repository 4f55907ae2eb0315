"""What a script's jitted functions are called with: which shapes, how often new ones come, and what differs in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tuner.protocol.messages import Recompiled
from tuner.worker.step import Step

__all__ = ["Shape", "Signatures", "home_of", "shape_of"]

_FEW = 3  # values of one argument that are told beside the last
_ARGUMENTS = 2


@dataclass(frozen=True)
class Shape:
    """What of a call decides whether there is an executable for it. `leaves`: (path, type) of each array."""

    statics: tuple[tuple[str, str], ...]
    tree: Any
    leaves: tuple[tuple[str, str], ...]


@dataclass
class Signatures:
    """The calls of one function, told by where it is written: it may be jitted again and again.

    `new`: number of each call that needed an executable of its own, counted over this function's calls, and over all
    calls of all functions. `where`: the last such call.
    """

    name: str
    calls: int = 0
    new: list[tuple[int, int]] = field(default_factory=list)
    shapes: dict[Shape, None] = field(default_factory=dict)
    seconds: float = 0.0
    where: str = ""

    def called(self, shape: Shape, *, number: int, first: bool, seconds: float, where: str) -> None:
        """One more call, the `number`-th of all. `first`: of this shape, by this object that jit made."""
        if first:
            self.new.append((self.calls, number))
            self.shapes[shape] = None
            self.where = where or self.where
        self.calls += 1
        self.seconds += seconds

    @property
    def varied(self) -> frozenset[str]:
        """Paths of the arrays whose type isn't always the same; nothing where their number isn't."""
        shapes = [*self.shapes]
        if len({shape.tree for shape in shapes}) > 1:
            return frozenset()
        return frozenset(path for path, kinds in _columns(shapes, "leaves") if len(kinds) > 1)

    def told(self, *, step: bool, tuned: str, since: int) -> Recompiled:
        """`since`: number of the first call of what is tuned."""
        return Recompiled(
            name=self.name,
            where=self.where,
            compiles=len(self.new),
            seconds=self.seconds,
            calls=self.calls,
            late=sum(own >= self.calls // 2 for own, _ in self.new),
            inside=sum(number >= since for _, number in self.new),
            shapes=len(self.shapes),
            differs=_differs([*self.shapes]),
            step=step,
            tuned=tuned,
        )


def shape_of(step: Step, types: Sequence[str]) -> Shape:
    """The shape of a call. `types`: of its array leaves, in order."""
    given = (*step.inputs.static_args.items(), *step.inputs.static_kwargs.items())
    statics = tuple((str(name), repr(value)) for name, value in given)
    return Shape(statics, step.inputs.tree, tuple(zip(step.inputs.paths, types, strict=True)))


def home_of(step: Step, jitted: Any) -> Any:
    """What tells a function from others however often it is jitted: where its code is; else the object itself."""
    code = getattr(step.function, "__code__", None)
    return (code.co_filename, code.co_firstlineno, step.name) if code is not None else id(jitted)


def _differs(shapes: Sequence[Shape]) -> str:
    """In what the shapes differ: the arguments, each with some of its values; "" for a single one."""
    if len(shapes) < 2:
        return ""
    if len({shape.tree for shape in shapes}) > 1:
        return "the structure of the arguments"
    columns = [(f"static {name}", values) for name, values in _columns(shapes, "statics")] + _columns(shapes, "leaves")
    found = [f"{name}: {_some(values)}" for name, values in columns if len(values) > 1]
    more = f" and {len(found) - _ARGUMENTS} more" if len(found) > _ARGUMENTS else ""
    return "; ".join(found[:_ARGUMENTS]) + more


def _columns(shapes: Sequence[Shape], of: Literal["statics", "leaves"]) -> list[tuple[str, list[str]]]:
    """Each argument with its different values, in the order in which they came."""
    rows = zip(*(getattr(shape, of) for shape in shapes), strict=True)
    return [(row[0][0], list(dict.fromkeys(value for _, value in row))) for row in rows]


def _some(values: Sequence[str]) -> str:
    if len(values) <= _FEW + 1:
        return ", ".join(values)
    return f"{', '.join(values[:_FEW])} … {values[-1]}"
