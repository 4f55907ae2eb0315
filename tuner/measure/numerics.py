"""The numerics gate: how far a candidate's results may lie from the control's, and which results are wrong."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from tuner.measure.types import Tolerance
from tuner.protocol.messages import LeafStats, NumericsReply

__all__ = ["epsilon", "judge", "tolerances"]

# Limits are multiples of the null set's largest statistic: after one step tight, after more steps loose. The statistics
# of a large leaf hardly vary from one harmless change to the next; a scalar's is a single draw, and the largest of two
# may be small by luck. A multiple is generous while the limit stays small in absolute terms: a one-ulp nudge moves a
# long sum in float32 by less than its reordering does, and a real fault is orders of magnitude above.
_STRICT, _STRICT_SCALAR = 3.0, 12.0
_GENEROUS, _GENEROUS_UP_TO = 32.0, 1e-3
_LOOSE = 2.0
# Floors, in units of the dtype's eps: accumulation in float32 or better over long sums, and rounding of the result.
_ACCUMULATION, _ROUNDING_SLOPE, _ROUNDING_L2 = 256.0, 4.0, 1.0
# Integers: the share of values that may differ, if the null set shows that harmless changes flip some.
_FLIPPED, _FLIPPED_MOST, _FLIPPED_ROOM = 5.0, 0.05, 1.5

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


def tolerances(null_replies: Sequence[NumericsReply], *, dtypes: Collection[str] = ()) -> tuple[Tolerance, ...]:
    """The gate's limits, one a leaf and number of steps, from a null set of harmless changes.

    `null_replies`: the control against its own reference with inputs moved by one ulp, benign recompiles, plain
    repeats. `dtypes`: floating dtypes that the program is known to compute in; a leaf's floor goes by the coarsest of
    them and its own.

    For floating leaves a limit is the larger of

    - a multiple of the largest null statistic: 3 + 9/√(elements) times, or up to 32 times while the limit stays below
      1e-3 (after more than one step: twice that);
    - a floor: 256 eps (of float32 at most) for sums in another order, plus for the slope 4 eps/√(elements in the
      smallest slice) and for l2 one eps for rounding results to the leaf's dtype; times √steps.

    A slice's rounding errors average out over its elements, which is why a slice that is wrong by 1 % shows in a
    bfloat16 matrix, but can't in a bfloat16 vector. Other leaves must be equal, unless harmless changes make some
    values differ: then 5 times that share may, up to 5 %, or half as many again where the null set is beyond that.

    Raises ValueError for an empty null set.
    """
    if not null_replies:
        raise ValueError("no harmless change was measured: there is nothing to set limits from")
    working = max((eps for d in dtypes if (eps := epsilon(d)) is not None), default=0.0)
    seen: dict[tuple[str, int], list[LeafStats]] = defaultdict(list)
    for reply in null_replies:
        for leaf in reply.leaves:
            seen[leaf.path, leaf.steps].append(leaf)
    return tuple(_tolerance(leaves, working) for leaves in seen.values())


def judge(reply: NumericsReply, limits: Iterable[Tolerance]) -> tuple[bool, str]:
    """Whether the results pass, and if not, why: the leaf, the steps, the statistic and by how much.

    The workload's own check, where there is one, decides alone. Else every leaf must keep within its limits, with NaN
    and infinities at the reference's places; a leaf that has no limit, a limit without its leaf, a statistic that is
    not a number and a reply without any leaf fail. Of several faults the one after the fewest steps is named, there
    the worst.
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


def _tolerance(leaves: Sequence[LeafStats], working: float) -> Tolerance:
    leaf = leaves[0]
    l2, slope = max(x.l2 for x in leaves), max(x.slope for x in leaves)
    own = epsilon(leaf.dtype)
    if own is None:
        return Tolerance(path=leaf.path, steps=leaf.steps, l2=_share_allowed(l2), slope=0.0)
    eps = max(own, working)
    growth = math.sqrt(max(1, leaf.steps))
    sums = _ACCUMULATION * min(eps, _EPSILONS["float32"])
    l2_floor = (sums + _ROUNDING_L2 * eps) * growth
    slope_floor = (sums + _ROUNDING_SLOPE * eps / math.sqrt(_smallest_slice(leaf))) * growth
    loose = 1.0 if leaf.steps <= 1 else _LOOSE
    return Tolerance(
        path=leaf.path,
        steps=leaf.steps,
        l2=max(l2_floor, loose * _multiple(l2, leaf.size)),
        slope=max(slope_floor, loose * _multiple(slope, leaf.size)),
    )


def _multiple(largest: float, size: int) -> float:
    strict = _STRICT + (_STRICT_SCALAR - _STRICT) / math.sqrt(max(1, size))
    return max(strict * largest, min(_GENEROUS * largest, _GENEROUS_UP_TO))


def _share_allowed(largest: float) -> float:
    return min(1.0, max(_FLIPPED_ROOM * largest, min(_FLIPPED * largest, _FLIPPED_MOST)))


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
    if epsilon(leaf.dtype) is None:
        if leaf.l2 <= limit.l2:
            return None
        share = f"{100 * leaf.l2:.2g} % of the values differ, limit {100 * limit.l2:.2g} %"
        return leaf.steps, -_excess(leaf.l2, limit.l2), f"{place}: {share}"
    excess, name, value, most = max(
        (_excess(value, most), name, value, most)
        for name, value, most in (("slope error", leaf.slope, limit.slope), ("relative error", leaf.l2, limit.l2))
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
