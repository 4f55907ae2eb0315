"""A candidate's results against the reference."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuner.protocol.messages.compiling import HANDLE

__all__ = ["LeafStats", "Numerics", "NumericsReply"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """Run `id` from the initial state for 1 and for `steps` steps and compare with (or become) the reference.

    `reference`: file of the reference outputs. `save`: write them instead of comparing.
    `nudge`: 0, or which random draw moves every floating input leaf by a rounding error first (null set), by
    `nudge_size` times as much. `precise`: the reference is (to be) computed in a wider floating dtype: `save` then runs
    the step's own trace in float64, or in float32 with the highest matmul precision, whatever was compiled as `id`.
    """

    id: str = field(metadata=HANDLE)
    steps: int
    reference: str
    save: bool = False
    nudge: int = 0
    nudge_size: float = 1.0
    precise: bool = False
    function: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafStats:
    """Candidate against reference for one output leaf after `steps` steps.

    `l2`: ‖c − r‖ / ‖r‖ over finite entries. `slope`: largest |⟨c − r, r⟩| / ‖r‖² over all slices along all axes,
    slices with norm below the leaf's RMS slice norm measured against that. `masks_equal`: NaN, +inf and -inf sit at
    the same places. Both numbers are 0.0 for equal integer leaves; for unequal ones `l2` is the share that differs.
    `shape`: the leaf's, () for a scalar and where it wasn't told.

    Of a leaf that takes an input's place, after the last step (else None, False): `travel`: how far the reference moved
    from where it began, ‖r − s‖ / ‖r‖. `moved_l2`, `moved_slope`: as `l2` and `slope`, with r − s in place of r.
    `still`: the candidate is its input bit for bit, while the reference is not. Where a nudge displaced an input, its
    displacement is taken off the output before anything is compared.
    """

    path: str
    dtype: str
    size: int
    steps: int
    l2: float
    slope: float
    masks_equal: bool
    shape: tuple[int, ...] = ()
    travel: float | None = None
    moved_l2: float | None = None
    moved_slope: float | None = None
    still: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericsReply:
    """`check`: what the workload's own ``check(reference, candidate)`` said, None without one and for a precise
    reference, of which `precision` names the dtype that it was computed in ("" for the control's own outputs).
    `other_inputs`: those that were plainly others where the reference was made."""

    leaves: tuple[LeafStats, ...]
    check: bool | None = None
    check_message: str = ""
    precision: str = ""
    other_inputs: tuple[str, ...] = ()
