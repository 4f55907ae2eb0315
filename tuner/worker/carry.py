"""State threading: which inputs of a step are replaced by its outputs, and the loops that run steps that way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal

import jax

from tuner.protocol.failure import FailureClass
from tuner.worker.failures import Refused
from tuner.worker.step import Inputs

__all__ = ["Carry", "counted", "detected", "paired", "run"]


@dataclass(frozen=True)
class Carry:
    """`whole`: the output is the new first argument. `prefix`: the first `count` outputs are the new first `count`
    arguments. `leaves`: single leaves, as `pairs` (input leaf, output leaf) says; `pairs` is filled for every kind."""

    kind: Literal["none", "whole", "prefix", "leaves"]
    count: int = 0
    pairs: tuple[tuple[int, int], ...] = ()


def detected(args: tuple[Any, ...], out: Any) -> Carry:
    """By tree, shape and dtype: the output that looks like the first argument, else the longest run of leading outputs
    that look like the leading arguments. `args` (static ones None) and `out` hold anything with shape and dtype."""
    if args and _leaves(args[0]) and _alike(args[0], out):
        return Carry("whole", 1, _identity(_leaves(out)))
    return _prefix(args, out, _common(args, out))


def counted(args: tuple[Any, ...], out: Any, count: int) -> Carry:
    """The workload says how many leading arguments are replaced. Raises Refused(WORKLOAD) if the outputs don't fit."""
    if count == 1 and args and _alike(args[0], out):
        return Carry("whole", 1, _identity(_leaves(out)))
    if count > _common(args, out):
        raise Refused(
            FailureClass.WORKLOAD,
            f"carry={count}, but the first {count} outputs don't have the shapes and dtypes of the arguments",
        )
    return _prefix(args, out, count)


def paired(args: tuple[Any, ...], out: Any, pairs: Sequence[tuple[int, int]]) -> Carry:
    """Leaf by leaf, as seen in a running script; as a whole or prefix where that says the same."""
    wanted = tuple(sorted(pairs))
    if args and _alike(args[0], out) and wanted == _identity(_leaves(out)):
        return Carry("whole", 1, wanted)
    for count in range(1, _common(args, out) + 1):
        if (prefix := _prefix(args, out, count)).pairs == wanted:
            return prefix
    return Carry("leaves", 0, wanted) if wanted else Carry("none")


def run(
    carry: Carry,
    function: Callable[..., Any],
    *,
    call: tuple[tuple[Any, ...], dict[str, Any]],
    steps: int,
    inputs: Inputs,
    fresh: Callable[[], Sequence[tuple[int, Any]]] | None = None,
) -> tuple[Any, tuple[tuple[Any, ...], dict[str, Any]]]:
    """Enqueue `steps` steps from `call` (args, kwargs); returns the last output and the arguments of the next call.

    `fresh` gives (leaf, array) pairs to put in before each step: inputs that the step donates without giving them back.
    The loops are bare because what they cost is timed: no tree operation where a whole argument is carried.
    """
    out: Any = None
    if fresh is not None or carry.kind == "leaves":
        return _run_leaves(carry, function, inputs.leaves(*call), steps, inputs, fresh)
    args, kwargs = call
    if carry.kind == "none":
        for _ in repeat(None, steps):
            out = function(*args, **kwargs)
        return out, call
    del call  # so that a state that is not donated dies with the step that replaces it, as in a training loop
    if carry.kind == "whole":
        out, rest = args[0], args[1:]
        del args
        for _ in repeat(None, steps):
            out = function(out, *rest, **kwargs)
        return out, ((out, *rest), kwargs)
    count = carry.count
    head, rest = args[:count], args[count:]
    del args
    for _ in repeat(None, steps):
        out = function(*head, *rest, **kwargs)
        head = out[:count]
    return out, ((*head, *rest), kwargs)


def _run_leaves(
    carry: Carry,
    function: Callable[..., Any],
    leaves: list[Any],
    steps: int,
    inputs: Inputs,
    fresh: Callable[[], Sequence[tuple[int, Any]]] | None,
) -> tuple[Any, tuple[tuple[Any, ...], dict[str, Any]]]:
    out: Any = None
    for _ in repeat(None, steps):
        for position, array in fresh() if fresh is not None else ():
            leaves[position] = array
        args, kwargs = inputs.call(leaves)
        out = function(*args, **kwargs)
        results = jax.tree.leaves(out)
        for source, target in carry.pairs:
            leaves[source] = results[target]
    return out, inputs.call(leaves)


def _prefix(args: tuple[Any, ...], out: Any, count: int) -> Carry:
    leaves = _leaves(args[:count])
    return Carry("prefix", count, _identity(leaves)) if leaves else Carry("none")


def _common(args: tuple[Any, ...], out: Any) -> int:
    """How many leading outputs look like the leading arguments."""
    if not isinstance(out, (tuple, list)):
        return 0
    count = 0
    for arg, result in zip(args, out, strict=False):
        if not _alike(arg, result):
            break
        count += 1
    return count


def _alike(one: Any, other: Any) -> bool:
    trees: list[Any] = [jax.tree.structure(one), jax.tree.structure(other)]
    leaves, others = jax.tree.leaves(one), jax.tree.leaves(other)
    return trees[0] == trees[1] and all(_aval(a) == _aval(b) for a, b in zip(leaves, others, strict=True))


def _aval(leaf: Any) -> tuple[Any, ...]:
    aval = leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.typeof(leaf)
    return tuple(aval.shape), aval.dtype


def _leaves(tree: Any) -> int:
    return len(jax.tree.leaves(tree))


def _identity(count: int) -> tuple[tuple[int, int], ...]:
    return tuple((i, i) for i in range(count))
