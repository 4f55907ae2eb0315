"""The numerics gate: how far a candidate's results may lie from the control's, and which results are wrong."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tuner.measure.types import Tolerance
from tuner.protocol.messages import LeafStats, NumericsReply

__all__ = ["COARSE_NUDGE", "epsilon", "judge", "second_chance", "tolerances"]

COARSE_NUDGE = 16.0
"""How many rounding errors inputs are moved by to see what jumps: integers that hang on floats, signs of updates."""

# Limits are multiples of the null set's largest statistic: after one step tight, after more steps loose. Statistics of
# a large leaf hardly vary from one harmless change to the next; a scalar's is a single draw, and the largest of a few
# may be small by luck. A multiple is generous while the limit stays small in absolute terms: a one-ulp nudge moves a
# long sum in float32 by less than its reordering does, and a real fault is orders of magnitude above.
_STRICT, _STRICT_SCALAR = 3.0, 12.0
_GENEROUS, _GENEROUS_UP_TO = 32.0, 1e-3
_LOOSE = 2.0
# Floors, in units of the dtype's eps: accumulation in float32 or better over long sums, and rounding of the result.
_ACCUMULATION, _ROUNDING_SLOPE, _ROUNDING_L2 = 256.0, 4.0, 1.0
# An update is stored in the leaf's own dtype, and is small beside the leaf: in narrow floats most elements don't move,
# some by a whole ulp. Those that a harmless change makes jump or stay: so many at least, or this multiple of the
# movement as a share of the elements.
_JUMPS, _JUMP_SHARE = 4.0, 4.0
# Integers: the share of values that may differ, if the null set shows that harmless changes flip some.
_FLIPPED, _FLIPPED_MOST, _FLIPPED_ROOM = 5.0, 0.05, 1.5
# A null set of a few draws may show none of a flip that comes once in ten times. As many as a coarse nudge flips, over
# its size, are expected then; a candidate may differ by several rounding errors, and counts scatter like Poisson's.
_FLIP_ROUNDINGS, _FLIP_SIGMAS = 3.0, 3.0
# Floats jump too: an optimiser that divides a gradient by its size turns a sign that flips into a whole step. A
# statistic that the coarse nudge raises by more than twice the nudge's own size has such jumps, and a harmless
# candidate may have as large a one although no draw had.
_JUMPS_ABOVE, _JUMP_ROOM = 2.0, 1.25
# Against a high-precision reference the control's own distance is the measure. That of a large leaf hardly varies
# between harmless variants (within a fifth, in what was tried); a scalar's is a single draw.
_NO_FARTHER, _NO_FARTHER_SCALAR = 2.0, 8.0

_EPSILONS = {
    "float64": 2.0**-52,
    "complex128": 2.0**-52,
    "float32": 2.0**-23,
    "complex64": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
}
_NARROW_FLOAT = re.compile(r"float[468]_e\d+m(\d+)")


def epsilon(dtype: str) -> float | None:
    """Distance from 1 to the next larger number of `dtype`; None if it is no floating dtype.

    Narrow floats name their mantissa bits (``float8_e4m3fn``). A float that isn't known counts as the coarsest.
    """
    if dtype in _EPSILONS:
        return _EPSILONS[dtype]
    if narrow := _NARROW_FLOAT.match(dtype):
        return 2.0 ** -int(narrow[1])
    return 1.0 if "float" in dtype or "complex" in dtype else None


def tolerances(
    null_replies: Sequence[NumericsReply], coarse: NumericsReply | None = None, *, strict: bool = False
) -> tuple[Tolerance, ...]:
    """The gate's limits, one a leaf and number of steps, from a null set of harmless changes.

    `null_replies`: the control against its own reference with inputs moved by rounding errors, benign recompiles,
    plain repeats. `coarse`: the control with inputs moved by `COARSE_NUDGE` rounding errors, for what jumps alone.
    `strict`: for settings that are declared to trade accuracy. What is generous towards sums in another order would
    let products in a narrower format pass as well.

    For floating leaves a limit is the larger of

    - a multiple of the largest null statistic: 3 + 9/√(elements) times, or, unless `strict`, up to 32 times while the
      limit stays below 1e-3 (after more than one step: twice that);
    - a floor: 256 eps (of float32 at most) for sums in another order, plus for the slope 4 eps/√(elements in the
      smallest slice) and for l2 one eps for rounding results to the leaf's dtype; times √steps. For what was done to a
      leaf that takes an input's place, the rounding counts in units of the movement, and for as many elements as a
      harmless change makes jump by an ulp;
    - what the coarse nudge gives and a quarter more, where that is over 32 times the largest null statistic: then jumps
      make it up, which a few draws may lack by luck.

    A slice's rounding errors average out over its elements, which is why a slice that is wrong by 1 % shows in a
    bfloat16 matrix, but can't in a bfloat16 vector. Other leaves must be equal, unless harmless changes make some
    values differ: then 5 times that share may, up to 5 %, or half as many again where the null set is beyond that; and
    as many as three rounding errors flip by chance, going by what the coarse nudge flips.

    Raises ValueError for an empty null set.
    """
    if not null_replies:
        raise ValueError("no harmless change was measured: there is nothing to set limits from")
    seen: dict[tuple[str, int], list[LeafStats]] = defaultdict(list)
    for reply in null_replies:
        for leaf in reply.leaves:
            seen[leaf.path, leaf.steps].append(leaf)
    coarsely = {(leaf.path, leaf.steps): leaf for leaf in coarse.leaves} if coarse else {}
    return tuple(_tolerance(leaves, coarsely.get(key), strict=strict) for key, leaves in seen.items())


def judge(reply: NumericsReply, limits: Iterable[Tolerance]) -> tuple[bool, str]:
    """Whether the results pass, and if not, why: the leaf, the steps, the statistic and by how much.

    The workload's own check, where there is one, decides alone. Else every leaf must keep within its limits, with NaN
    and infinities at the reference's places, and a leaf that steps move must have moved; a leaf that has no limit, a
    limit without its leaf, a statistic that is not a number and a reply without any leaf fail. Of several faults the
    one after the fewest steps is named, there the worst.
    """
    if reply.check is not None:
        return reply.check, "" if reply.check else f"wrong result: {reply.check_message or 'the check says no'}"
    allowed = {(t.path, t.steps): t for t in limits}
    faults = [fault for leaf in reply.leaves if (fault := _fault(leaf, allowed.get((leaf.path, leaf.steps))))]
    if faults:
        return False, f"wrong result: {min(faults)[2]}"
    if not reply.leaves:
        return False, "wrong result: no output was compared"
    if missing := allowed.keys() - {(leaf.path, leaf.steps) for leaf in reply.leaves}:
        path, steps = min(missing, key=lambda key: (key[1], key[0]))
        return False, f"wrong result: {_place(path, steps)}: missing"
    return True, ""


def second_chance(
    reply: NumericsReply, limits: Iterable[Tolerance], *, precise: NumericsReply, control: NumericsReply
) -> tuple[bool, str]:
    """Whether results that `judge` refuses are different, but no farther from a high-precision reference; and in words.

    `precise`, `control`: the candidate and the control against that reference. For each leaf beyond its limit, each
    statistic may be 2 + 6/√(elements) times the control's own, and one rounding to the leaf's dtype more; or as large
    as its limit, since being so near the truth is as good as being so near the control. NaN and infinities must sit
    where the control has them, and a leaf that steps move must have moved, as in `judge`.
    """
    allowed = {(t.path, t.steps): t for t in limits}
    leaves = {(leaf.path, leaf.steps): leaf for leaf in reply.leaves}
    beyond = {key: leaf for key, leaf in leaves.items() if _fault(leaf, allowed.get(key))}
    own = {(leaf.path, leaf.steps): leaf for leaf in control.leaves}
    found = {(leaf.path, leaf.steps): leaf for leaf in precise.leaves}
    if not beyond or allowed.keys() != leaves.keys() or not beyond.keys() <= own.keys() & found.keys():
        return False, "outputs are missing"
    for key, leaf in beyond.items():
        if not leaf.masks_equal or (leaf.still and allowed[key].moves):
            return False, f"{_place(*key)}: no distance can excuse that"
    times, key = max((_times_farther(found[key], own[key], allowed[key]), key) for key in beyond)
    if times > 1:
        how_far = f"{times:.2g} times what its distance from a {precise.precision} reference may be"
        return False, f"{_place(*key)}: {how_far}"
    return True, f"different from the default's results, but no farther from a {precise.precision} reference"


def _times_farther(leaf: LeafStats, control: LeafStats, limit: Tolerance) -> float:
    """The worst of a leaf's distances from the reference, in units of what may be."""
    size = max(1, leaf.size)
    eps = epsilon(leaf.dtype)
    if eps is None:
        few = (1.0 + _FLIP_SIGMAS * math.sqrt(size * control.l2)) / size if control.l2 > 0 else 0.0
        return _excess(leaf.l2, max(limit.l2, _NO_FARTHER * control.l2 + few))
    factor = _NO_FARTHER + (_NO_FARTHER_SCALAR - _NO_FARTHER) / math.sqrt(size)
    jump = eps / leaf.travel * math.sqrt(_jumping(leaf, eps)) if leaf.travel else 0.0
    statistics = (
        (leaf.l2, control.l2, eps, limit.l2),
        (leaf.slope, control.slope, eps, limit.slope),
        (leaf.moved_l2, control.moved_l2, jump, limit.moved_l2),
        (leaf.moved_slope, control.moved_slope, jump, limit.moved_slope),
    )
    return max(
        _excess(value, max(factor * own + rounding, most or 0.0))
        for value, own, rounding, most in statistics
        if value is not None and own is not None
    )


def _tolerance(leaves: Sequence[LeafStats], coarse: LeafStats | None, *, strict: bool) -> Tolerance:
    leaf = leaves[0]
    l2 = max(x.l2 for x in leaves)
    moves = leaf.travel is not None and not any(x.still for x in leaves)
    eps = epsilon(leaf.dtype)
    if eps is None:
        share = _share_allowed(l2, coarse.l2 if coarse else 0.0, leaf.size)
        return Tolerance(path=leaf.path, steps=leaf.steps, l2=share, slope=0.0, moves=moves)
    sums = _ACCUMULATION * min(eps, _EPSILONS["float32"])
    in_slice = math.sqrt(_smallest_slice(leaf))

    def limit(name: str, rounding: float) -> float:
        largest = max(getattr(x, name) or 0.0 for x in leaves)
        loose = 1.0 if leaf.steps <= 1 else _LOOSE
        growth = math.sqrt(max(1, leaf.steps))
        jumps = _jumps(largest, getattr(coarse, name) if coarse else None)
        return max((sums + rounding) * growth, loose * _multiple(largest, leaf.size, strict=strict), jumps)

    limits = {"l2": limit("l2", _ROUNDING_L2 * eps), "slope": limit("slope", _ROUNDING_SLOPE * eps / in_slice)}
    if leaf.travel:
        jump = eps / leaf.travel * math.sqrt(_jumping(leaf, eps))
        limits["moved_l2"] = limit("moved_l2", _ROUNDING_L2 * jump)
        limits["moved_slope"] = limit("moved_slope", _ROUNDING_SLOPE * jump / in_slice)
    return Tolerance(path=leaf.path, steps=leaf.steps, moves=moves, **limits)


def _jumps(largest: float, coarse: float | None) -> float:
    """Room for jumps: what the coarse nudge gives beyond what the null set's largest statistic, scaled, would."""
    if coarse is None or not math.isfinite(coarse) or coarse <= _JUMPS_ABOVE * COARSE_NUDGE * largest:
        return 0.0
    return _JUMP_ROOM * coarse


def _jumping(leaf: LeafStats, eps: float) -> float:
    """Share of the leaf's elements that a harmless change may round to a neighbour: all, in float32 or better."""
    if eps <= _EPSILONS["float32"] or not leaf.travel:
        return 1.0
    return min(1.0, max(_JUMPS / leaf.size, _JUMP_SHARE * leaf.travel))


def _multiple(largest: float, size: int, *, strict: bool) -> float:
    least = (_STRICT + (_STRICT_SCALAR - _STRICT) / math.sqrt(max(1, size))) * largest
    return least if strict else max(least, min(_GENEROUS * largest, _GENEROUS_UP_TO))


def _share_allowed(largest: float, flipped: float, size: int) -> float:
    """`largest`: the null set's share of values that differ. `flipped`: the coarse nudge's."""
    by_chance = 0.0
    if flipped > 0:
        expected = _FLIP_ROUNDINGS * flipped * size / COARSE_NUDGE
        by_chance = (expected + _FLIP_SIGMAS * math.sqrt(expected) + 1.0) / size
    return min(1.0, max(_FLIPPED_ROOM * largest, min(_FLIPPED * largest, _FLIPPED_MOST), by_chance))


def _smallest_slice(leaf: LeafStats) -> int:
    """Elements in a slice across the longest axis; 1 where the shape wasn't told."""
    return leaf.size // max(leaf.shape) if leaf.shape and leaf.size else 1


def _fault(leaf: LeafStats, limit: Tolerance | None) -> tuple[int, float, str] | None:
    """(steps, −badness, text) of what is wrong with a leaf, the smallest first."""
    place = _place(leaf.path, leaf.steps)
    if limit is None:
        return leaf.steps, -math.inf, f"{place}: not among the outputs that limits were measured for"
    if not leaf.masks_equal:
        return leaf.steps, -math.inf, f"{place}: NaN or infinity in other places than the reference has them"
    if leaf.still and limit.moves:
        return leaf.steps, -math.inf, f"{place}: still what the step was given, where the reference has moved"
    if epsilon(leaf.dtype) is None:
        if leaf.l2 <= limit.l2:
            return None
        share = f"{100 * leaf.l2:.2g} % of the values differ, limit {100 * limit.l2:.2g} %"
        return leaf.steps, -_excess(leaf.l2, limit.l2), f"{place}: {share}"
    excess, name, value, most = max(
        (_excess(value, most), name, value, most)
        for name, value, most in (
            ("slope error", leaf.slope, limit.slope),
            ("relative error", leaf.l2, limit.l2),
            ("slope error of the update", leaf.moved_slope, limit.moved_slope),
            ("relative error of the update", leaf.moved_l2, limit.moved_l2),
        )
        if value is not None and most is not None
    )
    if excess <= 1:
        return None
    return leaf.steps, -excess, f"{place}: {name} {value:.1e}, limit {most:.0e}"


def _excess(value: float, most: float) -> float:
    """`value` in units of its limit; infinite if it is no number."""
    if math.isnan(value):
        return math.inf
    return value / most if most > 0 else math.inf if value > 0 else 0.0


def _place(path: str, steps: int) -> str:
    return f"output {path} after {steps} step{'' if steps == 1 else 's'}"
