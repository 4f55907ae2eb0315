"""From the step in the trace to the step as it runs: what the tracer added is taken out of the gaps.

A tracer makes the host slower (launching a graph of many kernels takes several times as long), and the device by what
`instrumented.py` takes out before. So the times of work are the trace's; the step is that of consecutive steps without
a trace, and gaps are what work leaves of it: first launch gaps, no longer than in the trace, then host gaps. Where the
work alone is longer than the step, it is scaled down to it: clocks were lower in the trace.

Steps are waited for in a trace, so that a device rests between them. One that is given the next step before it ends the
last doesn't, and its clocks are lower: where the host is well ahead, and the device never waited inside a traced step,
what is left of the step isn't the host's, and work is scaled up to it. On a CPU that is no clock's doing but chance,
as which cores its threads ran on. There a step also waits for its threads to start, outside any operation: gaps stay
as they are in the trace.
"""

from __future__ import annotations

import msgspec

from tuner.profile.breakdown import HOST_GAPS, LAUNCH_GAPS
from tuner.profile.types import Breakdown

__all__ = ["untraced"]

_AHEAD = 0.5  # of the step: what calling it may take
_LAUNCH_MS = 0.02  # between two steps


def untraced(found: Breakdown, step_s: float, *, dispatch_s: float = 0.0) -> Breakdown:
    """The breakdown of a step that takes `step_s` without a trace, and `dispatch_s` to call; `found` itself if the
    former isn't known."""
    step_ms = 1e3 * step_s
    if step_ms <= 0 or found.step_ms <= 0:
        return found
    found = msgspec.structs.replace(found, dispatch_ms=1e3 * dispatch_s)
    scale = _scale(found, step_ms)
    share = scale * found.step_ms / step_ms
    busy_ms = scale * found.busy_ms
    free_ms = max(0.0, step_ms - busy_ms)
    launch_ms = min(found.parts.get(LAUNCH_GAPS, 0.0), free_ms)
    gaps = {LAUNCH_GAPS: launch_ms, HOST_GAPS: free_ms - launch_ms}
    work = {name: scale * ms for name, ms in found.parts.items() if name not in gaps}
    return msgspec.structs.replace(
        found,
        step_ms=step_ms,
        scale=scale,
        parts=work | {name: ms for name, ms in gaps.items() if ms > 0},
        busy_ms=busy_ms,
        hidden_ms=scale * found.hidden_ms,
        exposed_ms=scale * found.exposed_ms,
        kernel_us=scale * found.kernel_us,
        ops=tuple(
            msgspec.structs.replace(
                row, self_ms=scale * row.self_ms, total_ms=scale * row.total_ms, share=row.share * share
            )
            for row in found.ops
        ),
        by_kernel=tuple(
            msgspec.structs.replace(row, self_ms=scale * row.self_ms, share=row.share * share)
            for row in found.by_kernel
        ),
        scopes=tuple(
            msgspec.structs.replace(
                row, self_ms=scale * row.self_ms, total_ms=scale * row.total_ms, share=row.share * share
            )
            for row in found.scopes
        ),
    )


def _scale(found: Breakdown, step_ms: float) -> float:
    """What the trace's times of work are multiplied by."""
    if not found.busy_ms:
        return 1.0
    if found.busy_ms > step_ms:
        return step_ms / found.busy_ms
    ahead = 0 < found.dispatch_ms < _AHEAD * step_ms
    between_ms = _LAUNCH_MS if found.platform == "gpu" else found.parts.get(HOST_GAPS, 0.0) - found.stalls_ms
    idle_ms = found.parts.get(LAUNCH_GAPS, 0.0) + found.stalls_ms + between_ms
    return max(1.0, (step_ms - idle_ms) / found.busy_ms) if ahead else 1.0
