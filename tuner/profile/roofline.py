"""How near each operation is to the roof, and what holds the step back: the verdict with its numbers.

An operation takes at least as long as its FLOPs at the ceiling for their type, and as its bytes at the ceiling of the
memory; the longer of the two is its roof, and the share that it reaches is roof over time. The model and its words are
those of Williams, Waterman and Patterson (2009).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tuner.profile.breakdown import HOST_GAPS, LAUNCH_GAPS
from tuner.profile.costs import Cost, ModuleCosts
from tuner.profile.types import Bound, Breakdown, Ceiling, OpRow, Roofline

__all__ = ["bound_shares", "cost_of", "roofed", "verdict"]

_NEAR = 0.5  # from this share of the roof on an operation is held back by it; below, by something else
_TINY_US = 5.0  # a kernel this short is mostly its own launch
_HOST_PARTS = (HOST_GAPS, "host callback", "copy host to device", "copy device to host")
_COMMON = ("f32", "bf16", "f16", "f64")


def roofed(
    breakdown: Breakdown, costs: Mapping[str, ModuleCosts], ceiling: Ceiling | None
) -> tuple[Breakdown, Roofline]:
    """The breakdown with each operation's FLOPs, bytes and share of the roof, and the step's own roofline. `costs`: by
    module. Several devices that are one processor have each their part of its ceiling."""
    notes = []
    if ceiling and breakdown.platform == "cpu" and (sharing := breakdown.devices) > 1:
        ceiling = _part(ceiling, sharing)
        notes.append(f"{sharing} devices share this processor: what each can do at most is 1/{sharing} of it")
    rows = tuple(_row(row, costs, ceiling, breakdown.platform) for row in breakdown.ops)
    bare = [row.roof * row.self_ms for row in rows if row.roof is not None]
    at_least_ms = sum(bare) if ceiling and bare else None
    unknown = [name for of in costs.values() for name in of.unknown]
    if unknown:
        notes.append(f"the trip count of {', '.join(unknown[:3])} isn't known, so its body is counted once")
    if ceiling and ceiling.unsteady:
        notes.append(f"what this device can do at most was measured while it was busy: {', '.join(ceiling.unsteady)}")
    if uncounted := [row.name for row in rows if row.category == "library" and row.share > 0.02]:
        notes.append(f"what {', '.join(uncounted[:3])} computes isn't known, and counts nothing")
    roof = Roofline(
        flops=sum(of.flops for of in costs.values()),
        bytes=sum(of.bytes for of in costs.values()),
        share=min(1.0, at_least_ms / breakdown.busy_ms) if at_least_ms is not None and breakdown.busy_ms else None,
        at_least_ms=at_least_ms,
        ceiling=ceiling,
        note="; ".join(notes),
    )
    return msgspec.structs.replace(breakdown, ops=rows), roof


def _part(ceiling: Ceiling, sharing: int) -> Ceiling:
    flops = {name: most / sharing for name, most in ceiling.flops_per_s.items()}
    return msgspec.structs.replace(ceiling, flops_per_s=flops, bytes_per_s=ceiling.bytes_per_s / sharing)


def cost_of(row: OpRow, costs: Mapping[str, ModuleCosts]) -> Cost | None:
    """What one execution of an operation costs; None where its module, or it in there, isn't known."""
    return costs[row.module].each.get(row.name) if row.op and row.module in costs else None


def _row(row: OpRow, costs: Mapping[str, ModuleCosts], ceiling: Ceiling | None, platform: str) -> OpRow:
    cost = cost_of(row, costs)
    if cost is None:
        return row
    runs = _runs(row, costs[row.module])
    # Each kernel of a transform passes over all of it.
    passes = row.calls if row.category == "Fourier transform" else runs
    flops, moved = cost.flops * runs, cost.bytes * passes
    row = msgspec.structs.replace(row, flops=flops, bytes=moved)
    if ceiling is None or not row.self_ms or not (flops or moved):
        return row
    compute_s = runs * _compute_s(cost, ceiling, platform)
    memory_s = moved / ceiling.bytes_per_s
    roof = min(1.0, 1e3 * max(compute_s, memory_s) / row.self_ms)
    bound: Bound = "latency" if roof < _NEAR else "compute" if compute_s >= memory_s else "memory"
    return msgspec.structs.replace(row, roof=roof, bound=bound)


def _runs(row: OpRow, costs: ModuleCosts) -> float:
    """How often it ran: by the program where that says it, since one execution may take several kernels; never more
    often than there were kernels, as of a branch that isn't always taken."""
    return row.calls if row.name in costs.guessed else min(row.calls, costs.runs[row.name])


def _compute_s(cost: Cost, ceiling: Ceiling, platform: str) -> float:
    """Seconds that the arithmetic takes at least. A CPU does products with the same units as all else."""
    peaks = ceiling.flops_per_s
    matrix = peaks.get(cost.dtype) or next((peaks[name] for name in _COMMON if name in peaks), 0.0)
    vector = max(peaks.get("vector", 0.0), peaks.get("f32", 0.0) if platform == "cpu" else 0.0) or matrix
    rest = cost.flops - cost.matrix
    return (cost.matrix / matrix if matrix else 0.0) + (rest / vector if vector else 0.0)


def bound_shares(breakdown: Breakdown) -> dict[Bound, float]:
    """What share of the step each bound has. They sum to 1; work of which no roof is known is ``unknown``."""
    step = breakdown.step_ms
    if step <= 0:
        return {"unknown": 1.0}
    parts = breakdown.parts
    on_cpu = breakdown.platform == "cpu"
    shares: dict[Bound, float] = {
        "host": sum(parts.get(name, 0.0) for name in _HOST_PARTS) / step,
        "launch": parts.get(LAUNCH_GAPS, 0.0) / step,
        "communication": parts.get("collective", 0.0) / step,
    }
    aside = (*_HOST_PARTS, "collective")
    for row in breakdown.ops:
        if row.category in aside:
            continue
        tiny = not on_cpu and row.calls and 1e3 * row.self_ms / row.calls < _TINY_US
        bound: Bound = "launch" if tiny else row.bound
        shares[bound] = shares.get(bound, 0.0) + row.share
    rest = 1.0 - sum(shares.values())
    shares["unknown"] = max(0.0, shares.get("unknown", 0.0) + rest)
    return {bound: share for bound, share in shares.items() if share > 0}


_SAID: Mapping[Bound, str] = {
    "compute": "in operations near the roof of arithmetic",
    "memory": "in operations near the roof of memory",
    "latency": "in operations far from either roof",
    "launch": "in launches and kernels no longer than one",
    "communication": "in exposed collectives",
    "host": "waiting for the host",
    "unknown": "in work of which no roof is known",
}


def verdict(breakdown: Breakdown) -> tuple[Bound, str]:
    """What holds the step back most, and the shares that say so; "unknown" where they can't be relied on."""
    ranked = sorted(bound_shares(breakdown).items(), key=lambda item: -item[1])
    told = ", ".join(f"{100 * share:.0f} % {_SAID[bound]}" for bound, share in ranked[:3] if share >= 0.05)
    if breakdown.doubt:
        return "unknown", f"{breakdown.doubt}. As it stands: {told}"
    return ranked[0][0], told
