"""Arrays on an accelerator held against references where they are, by one call for many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tuner.worker.stats import (
    Difference,
    Start,
    Sums,
    along,
    difference_of,
    is_float,
    needs_scale,
    real,
    scale_of,
    sides_of,
    totals_of,
)

__all__ = ["begun"]


def begun(
    references: Sequence[np.ndarray[Any, Any]],
    candidates: Sequence[jax.Array],
    starts: Sequence[Start] = (),
    *,
    run: Callable[..., Any],
) -> Callable[[], list[Difference]]:
    """What `on_host.compared` finds, of candidates all of one sharding. It is only begun here; what is returned waits
    for it. ``run(f, *args)`` calls a jitted function (see `tuner.worker.programs`)."""
    sides = sides_of(references, candidates, starts)
    with jax.enable_x64(True):
        # One call sends all, and each once: but for a nudge both start alike.
        sent = {id(array): array for side in (sides[0], *sides[2:]) for array in side}
        there = dict(zip(sent, jax.device_put(list(sent.values()), candidates[0].sharding), strict=True))
        sides = [list(side) if i == 1 else [there[id(array)] for array in side] for i, side in enumerate(sides)]
        if not (is_float(references[0].dtype) and is_float(candidates[0].dtype)):
            counts = run(_counted, sides)
            return lambda: [Difference(n, 0.0, True, still=bool(still)) for n, still in np.asarray(counts).T.tolist()]
        scale = None
        if needs_scale(references[0], candidates[0]):
            scale = np.array([scale_of(largest) for largest in np.asarray(run(_largest, sides[:2])).tolist()])
        # One small array: each that is fetched costs a wait, and a long vector's slices are as many as its elements.
        totals = run(_totals, scale, sides)
        return lambda: [difference_of(*numbers) for numbers in np.asarray(totals).T.tolist()]


def _sums(scale: Any, reference: Any, candidate: Any, *starts: Any) -> Sums:
    """Of stacked leaves on a device, each divided by its `scale`, if any, before it is squared. With `starts` (the
    references', the candidates') the difference is that of the two movements."""
    r, c = reference.astype(jnp.float64), candidate.astype(jnp.float64)
    rest = tuple(range(1, r.ndim))
    finite = jnp.isfinite(r) & jnp.isfinite(c)
    masks = jnp.all(finite | (r == c) | (jnp.isnan(r) & jnp.isnan(c)), axis=rest)

    def scaled(values: Any) -> Any:
        return values if scale is None else values / jnp.reshape(scale, (-1, *(1 for _ in rest)))

    still = rested = jnp.zeros(len(r), bool)
    by_move: tuple[list[Any], list[Any]] = ([], [])
    if starts:
        s, t = (start.astype(jnp.float64) for start in starts)
        still, rested = jnp.all(c == t, axis=rest), jnp.all(r == s, axis=rest)
        # What began as NaN or infinity has not moved by a number: its whole value counts.
        numbers = jnp.isfinite(s) & jnp.isfinite(t)
        s, t = jnp.where(numbers, s, 0.0), jnp.where(numbers, t, 0.0)
        moved = jnp.where(finite, scaled(r) - scaled(s), 0.0)
        d = jnp.where(finite, (scaled(c) - scaled(t)) - moved, 0.0)
        by_move = along(jnp, d * moved), along(jnp, moved * moved)
    else:
        d = jnp.where(finite, scaled(c) - scaled(r), 0.0)
    r = jnp.where(finite, scaled(r), 0.0)
    return Sums(jnp.sum(d * d, axis=rest), masks, along(jnp, d * r), along(jnp, r * r), *by_move, still, rested)


def _stack(arrays: Sequence[Any]) -> Any:
    """One array of several leaves, made before it is used: within each sum it would be read leaf by leaf."""
    stack = jax.lax.optimization_barrier(jnp.stack(arrays))  # type: ignore[no-untyped-call]
    return real(jnp, stack.reshape(-1, 1) if stack.ndim == 1 else stack)


@jax.jit
def _largest(sides: Sequence[Sequence[Any]]) -> Any:
    """Each leaf's largest finite magnitude on any side."""
    wide = [jnp.abs(_stack(side).astype(jnp.float64)) for side in sides]
    largest = [jnp.max(jnp.where(jnp.isfinite(w), w, 0.0), axis=tuple(range(1, w.ndim))) for w in wide]
    return jnp.max(jnp.stack(largest), axis=0)


@jax.jit
def _counted(sides: Sequence[Sequence[Any]]) -> Any:
    """Of each leaf the share of entries that differ, and whether the candidate alone stood still."""
    reference, candidate, *starts = map(_stack, sides)
    rest = tuple(range(1, reference.ndim))
    share = jnp.mean(reference != candidate, axis=rest)
    still = jnp.zeros(len(reference), bool)
    if starts:
        still = jnp.all(candidate == starts[1], axis=rest) & ~jnp.all(reference == starts[0], axis=rest)
    return jnp.stack([share, still.astype(share.dtype)])


@jax.jit
def _totals(scale: Any, sides: Sequence[Sequence[Any]]) -> Any:
    return jnp.stack(totals_of(jnp, _sums(scale, *map(_stack, sides))))
