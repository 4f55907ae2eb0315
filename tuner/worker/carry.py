"""State threading: which inputs of a step are replaced by its outputs, and the loops that run steps that way."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import jax

from tuner.protocol.failure import FailureClass
from tuner.worker.failures import Refused
from tuner.worker.step import Inputs

__all__ = ["WHOLE", "Carry", "counted", "detected", "paired", "run"]

WHOLE = -1
"""In place of an output's position: the output as a whole."""

_Call = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Carry:
    """`moves`: (argument, output) positions that are replaced as they are. `pairs`: the same by (input leaf, output
    leaf); without moves, single leaves are replaced."""

    moves: tuple[tuple[int, int], ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()


def detected(args: tuple[Any, ...], out: Any, *, donated: Collection[int] = ()) -> Carry:
    """By tree, shape and dtype: the output as a whole if it looks like the first argument, else as many leading
    arguments as leading outputs look like; else each argument that is donated (its leaves are among `donated`) and
    looks like an output. A gradient looks like its parameters too: other places count with donation only.

    `args` (static ones None) and `out` hold anything with shape and dtype. Arguments without leaves are passed over.
    """
    if args and _alike(args[0], out):
        return _carry(args, out, [(0, WHOLE)])
    elements, starts = _elements(out), _starts(args)
    moves: list[tuple[int, int]] = []
    place = 0
    for i, arg in enumerate(args):
        fits = place < len(elements) and _alike(arg, elements[place])
        if not fits and starts[i + 1] > starts[i]:
            break
        if fits:
            moves.append((i, place))
            place += 1
    if not _carry(args, out, moves).pairs:
        moves = []
        for i, arg in enumerate(args):
            if all(leaf in donated for leaf in range(starts[i], starts[i + 1])):
                free = (
                    j for j, element in enumerate(elements) if _alike(arg, element) and all(j != k for _, k in moves)
                )
                moves += [(i, j) for j in free][:1]
    return _carry(args, out, moves)


def counted(args: tuple[Any, ...], out: Any, count: int) -> Carry:
    """The workload says how many leading arguments are replaced by as many leading outputs. Raises Refused(WORKLOAD)
    if these don't fit."""
    if count == 1 and args and _alike(args[0], out):
        return _carry(args, out, [(0, WHOLE)])
    elements = _elements(out)
    if count > min(len(args), len(elements)) or not all(map(_alike, args[:count], elements[:count])):
        raise Refused(
            FailureClass.WORKLOAD,
            f"carry={count}, but the first {count} outputs don't have the shapes and dtypes of the arguments",
        )
    return _carry(args, out, [(i, i) for i in range(count)])


def paired(args: tuple[Any, ...], out: Any, pairs: Sequence[tuple[int, int]]) -> Carry:
    """Leaf by leaf, as seen in a running script; by whole arguments where that says the same."""
    wanted = tuple(sorted(pairs))
    sources, targets = _starts(args), _starts(_elements(out))
    moves = [(0, WHOLE)] if args and _alike(args[0], out) else []
    if not moves:
        places = {start: j for j, start in enumerate(targets[:-1]) if targets[j + 1] > start}
        first = dict(wanted)
        for i, start in enumerate(sources[:-1]):
            j = places.get(first.get(start, -1)) if sources[i + 1] > start else None
            if j is not None and _alike(args[i], out[j]):
                moves.append((i, j))
    found = _carry(args, out, moves)
    return found if found.pairs == wanted else Carry((), wanted)


def run(
    carry: Carry,
    function: Callable[..., Any],
    *,
    call: _Call,
    steps: int,
    inputs: Inputs,
    fresh: Callable[[], Sequence[tuple[int, Any]]] | None = None,
) -> tuple[Any, _Call]:
    """Enqueue `steps` steps from `call` (args, kwargs); returns the last output and the arguments of the next call.

    `fresh` gives (leaf, array) pairs to put in before each step: inputs that the step donates without giving them back.
    """
    if fresh is not None or (carry.pairs and not carry.moves):
        return _run_leaves(carry, function, inputs.leaves(*call), steps, inputs, fresh)
    args, kwargs = [*call[0]], call[1]
    del call  # so that a state that is not donated dies with the step that replaces it, as in a training loop
    bound = functools.partial(function, **kwargs) if kwargs else function
    out, after = _loop(len(args), carry.moves)(bound, steps, args)
    return out, (after, kwargs)


@functools.cache
def _loop(count: int, moves: tuple[tuple[int, int], ...]) -> Callable[..., Any]:
    """A loop that calls a function of `count` arguments and makes the moves after each call.

    What the loop costs is timed with the step, and unpacking argument lists costs about 2 µs a step: so it is written
    out for this number of arguments, as a user would write it. It empties `args`: see `run`.
    """
    names = [f"a{i}" for i in range(count)]
    taken = "".join(f"{name}, " for name in names)
    lines = [
        "def loop(function, steps, args):",
        f"    {taken} = args" if count else "    pass",
        "    args.clear()",
        "    out = None",
        "    for _ in repeat(None, steps):",
        f"        out = function({taken})",
        *(f"        a{i} = out" if j == WHOLE else f"        a{i} = out[{j}]" for i, j in moves),
        f"    return out, ({taken})",
    ]
    space: dict[str, Any] = {"repeat": repeat}
    exec("\n".join(lines), space)
    loop: Callable[..., Any] = space["loop"]
    return loop


def _run_leaves(
    carry: Carry,
    function: Callable[..., Any],
    leaves: list[Any],
    steps: int,
    inputs: Inputs,
    fresh: Callable[[], Sequence[tuple[int, Any]]] | None,
) -> tuple[Any, _Call]:
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


def _carry(args: tuple[Any, ...], out: Any, moves: Sequence[tuple[int, int]]) -> Carry:
    sources, targets = _starts(args), _starts(_elements(out))
    pairs = []
    for i, j in moves:
        start = 0 if j == WHOLE else targets[j]
        pairs += [(sources[i] + k, start + k) for k in range(sources[i + 1] - sources[i])]
    full = tuple((i, j) for i, j in moves if sources[i + 1] > sources[i])
    return Carry(full, tuple(pairs))


def _starts(trees: Sequence[Any]) -> list[int]:
    """Position of each tree's first leaf among the leaves of all, and the number of all."""
    starts = [0]
    for tree in trees:
        starts.append(starts[-1] + len(jax.tree.leaves(tree)))
    return starts


def _elements(out: Any) -> Sequence[Any]:
    return out if isinstance(out, (tuple, list)) else ()


def _alike(one: Any, other: Any) -> bool:
    """Equal trees, shapes and dtypes."""
    trees: list[Any] = [jax.tree.structure(one), jax.tree.structure(other)]
    leaves, others = jax.tree.leaves(one), jax.tree.leaves(other)
    return bool(trees[0] == trees[1]) and all(_aval(a) == _aval(b) for a, b in zip(leaves, others, strict=True))


def _aval(leaf: Any) -> tuple[Any, ...]:
    aval = leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.typeof(leaf)
    return tuple(aval.shape), aval.dtype
