"""How far arrays are from others: relative L2 and the regression slope of every slice along every axis.

For a leaf that takes an input's place the same against what the step *did* to it: a parameter moves by a thousandth in
a step, so that a wrong gradient, or none, hardly shows in its value. The sums are made in `on_host` and `on_device`, of
several leaves at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

__all__ = [
    "MAX_RATIO",
    "Difference",
    "Start",
    "Sums",
    "along",
    "difference_of",
    "is_float",
    "needs_scale",
    "real",
    "scale_of",
    "sides_of",
    "totals_of",
]

MAX_RATIO = 1e300
"""Stands for "any difference from a reference that is zero": JSON has no infinity."""


@dataclass(frozen=True)
class Difference:
    """See `tuner.protocol.messages.LeafStats`."""

    l2: float
    slope: float
    masks_equal: bool
    travel: float | None = None
    moved_l2: float | None = None
    moved_slope: float | None = None
    still: bool = False


@dataclass(frozen=True)
class Start:
    """What a carried leaf was at first, in the reference's run and in the candidate's: a nudge is between them."""

    reference: np.ndarray[Any, Any]
    candidate: np.ndarray[Any, Any]


def sides_of(references: Sequence[Any], candidates: Sequence[Any], starts: Sequence[Start]) -> list[Sequence[Any]]:
    """What is compared: with `starts` the references' and the candidates' too."""
    if not starts:
        return [references, candidates]
    return [references, candidates, [start.reference for start in starts], [start.candidate for start in starts]]


@dataclass
class Sums:
    """Of several leaves, along the first axis of each field. `total`: ‖d‖² of the difference. `masks`: NaN and
    infinities sit at the same places. For each axis' slices: `dots` ⟨d, r⟩ and `norms` ‖r‖² with the reference,
    `moved_dots` and `moved_norms` with its movement, if there is one. `still`: the candidate has not moved; `rested`:
    nor has the reference."""

    total: Any
    masks: Any
    dots: list[Any]
    norms: list[Any]
    moved_dots: list[Any]
    moved_norms: list[Any]
    still: Any
    rested: Any

    @classmethod
    def empty(cls, shape: Sequence[int], *, moved: bool) -> Sums:
        """Of one leaf of `shape`, to be added up."""

        def zeros(*, wanted: bool = True) -> list[Any]:
            return [np.zeros((1, n)) for n in shape] if wanted else []

        truths = (np.ones(1, bool) for _ in range(3))
        moves = zeros(wanted=moved), zeros(wanted=moved)
        return cls(np.zeros(1), next(truths), zeros(), zeros(), *moves, *truths)

    def add(self, part: Sums, place: tuple[slice, ...]) -> None:
        """Add those of the block at `place`, a slice of each axis."""
        self.total += part.total
        self.masks &= part.masks
        self.still &= part.still
        self.rested &= part.rested
        for mine, other in (
            (self.dots, part.dots),
            (self.norms, part.norms),
            (self.moved_dots, part.moved_dots),
            (self.moved_norms, part.moved_norms),
        ):
            for into, values, here in zip(mine, other, place, strict=False):
                into[:, here] += values


def along(xp: Any, values: Any) -> list[Any]:
    """The sums over all axes but the first, which tells leaves apart, and one other."""
    axes = range(1, values.ndim)
    if len(axes) == 1:
        return [values]
    return [xp.sum(values, axis=tuple(a for a in axes if a != axis)) for axis in axes]


def needs_scale(*arrays: Any) -> bool:
    """Whether squares could leave the range of 64 bits: those of narrower floats can't."""
    return any(array.dtype.itemsize > (8 if array.dtype.kind == "c" else 4) for array in arrays)


def scale_of(largest: float) -> float:
    """A power of two near `largest`: dividing by it is exact."""
    return math.ldexp(1.0, min(math.frexp(largest)[1], 1000)) if largest > 0 else 1.0


def totals_of(xp: Any, sums: Sums) -> list[Any]:
    """What `difference_of` takes, each a number or a truth of every leaf."""
    totals = [sums.masks, sums.total, xp.sum(sums.norms[0], axis=1), _largest_slope(xp, sums.dots, sums.norms)]
    if sums.moved_norms:
        totals += [
            xp.sum(sums.moved_norms[0], axis=1),
            _largest_slope(xp, sums.moved_dots, sums.moved_norms),
            sums.still,
            sums.rested,
        ]
    return [xp.asarray(total, xp.float64) for total in totals]


def difference_of(
    masks: float,
    error2: float,
    size2: float,
    slope: float,
    movement2: float | None = None,
    moved_slope: float = 0.0,
    still: float = False,
    rested: float = False,
) -> Difference:
    """From squared norms of the difference, the reference and its movement, the largest slopes, and truths."""
    error, size = math.sqrt(error2), math.sqrt(size2)
    if movement2 is None:
        return Difference(_ratio(error, size), slope, bool(masks))
    movement = math.sqrt(movement2)
    return Difference(
        _ratio(error, size),
        slope,
        bool(masks),
        travel=_ratio(movement, size),
        # Of a reference that has not moved nothing can be said but by the value.
        moved_l2=_ratio(error, movement) if movement > 0 else 0.0,
        moved_slope=moved_slope if movement > 0 else 0.0,
        still=bool(still) and not rested,
    )


def _largest_slope(xp: Any, dots: list[Any], norms: list[Any]) -> Any:
    """Each leaf's largest |⟨d, r⟩| / ‖r‖² of all slices, small ones counted as of their axis' mean size; 0 where all
    are 0."""
    slopes = []
    for dot, norm in zip(dots, norms, strict=True):
        usual = xp.mean(norm, axis=1, keepdims=True)
        floor = xp.maximum(norm, xp.where(usual > 0, usual, 1.0))
        slopes.append(xp.max(xp.abs(dot) / floor, axis=1))  # ⟨d, r⟩ is 0 where r is
    return xp.max(xp.stack(slopes), axis=0)


def _ratio(part: float, whole: float) -> float:
    if part == 0:
        return 0.0
    return min(part / whole, MAX_RATIO) if whole > 0 else MAX_RATIO


def real(xp: Any, array: Any) -> Any:
    """`array` with real entries (a complex one gets an axis for its parts) and at least one axis."""
    if array.dtype.kind == "c":
        array = xp.stack([array.real, array.imag], axis=-1)
    return array.reshape(1) if array.ndim == 0 else array


def is_float(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.inexact))
