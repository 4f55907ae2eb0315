"""The made-up trace of a step on a fake machine: a product, a sum and a pause, on either platform."""

from __future__ import annotations

from tuner.protocol.messages import TraceLabel, TraceLine

__all__ = ["FAKE_HLO", "fake_trace"]

FAKE_HLO = """HloModule jit_step, is_scheduled=true

ENTRY %main (x.1: f32[512,512]) -> f32[512,512] {
  %x.1 = f32[512,512]{1,0} parameter(0), metadata={op_name="x"}
  %dot.1 = f32[512,512]{1,0} dot(%x.1, %x.1), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
metadata={op_name="jit(step)/forward/dot_general" source_file="step.py" source_line=7}
  ROOT %add.1 = f32[512,512]{1,0} add(%dot.1, %x.1), \
metadata={op_name="jit(step)/update/add" source_file="step.py" source_line=9}
}
"""

# Of a step: when each operation begins and how long it takes.
_OPERATIONS = (("dot.1", 0.05, 0.65), ("add.1", 0.72, 0.2))
_MODULE = "jit_step"


def fake_trace(platform: str, *, steps: int, step_s: float) -> tuple[tuple[TraceLabel, ...], tuple[TraceLine, ...]]:
    """Labels and lines of `steps` steps of `step_s` seconds, back to back."""
    step_ns = 1e9 * step_s
    labels = (
        TraceLabel(name="tune_step"),
        TraceLabel(name="PjitFunction(step)"),
        *(TraceLabel(name=op.replace(".", "_"), op=op, module=_MODULE) for op, _, _ in _OPERATIONS),
    )
    plane, line = ("/host:CPU", "tf_XLAEigen/1") if platform == "cpu" else ("/device:GPU:0", "Stream #7(Kernel)")
    begins = [round(number * step_ns) for number in range(steps)]
    host = TraceLine(
        plane="/host:CPU",
        name="python",
        labels=(0, 1) * steps,
        starts_ns=tuple(at for begin in begins for at in (begin, begin)),
        durations_ns=(round(step_ns), round(0.04 * step_ns)) * steps,
    )
    work = TraceLine(
        plane=plane,
        name=line,
        labels=(2, 3) * steps,
        starts_ns=tuple(begin + round(start * step_ns) for begin in begins for _, start, _ in _OPERATIONS),
        durations_ns=tuple(round(lasts * step_ns) for _, _, lasts in _OPERATIONS) * steps,
    )
    return labels, (host, work)
