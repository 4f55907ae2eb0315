"""The null set: what harmless changes do to results, which is what the numerics gate's limits are multiples of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tuner.measure import COARSE_NUDGE, Limits, tolerances
from tuner.pipeline.bench import CONTROL
from tuner.pipeline.context import Run
from tuner.protocol.failure import Failure
from tuner.protocol.messages import NumericsReply, OptionValue, Variant
from tuner.store.records import ProbeRecord

__all__ = ["Ask", "benign_variants", "limits_of"]

# Settings that change how the compiler reaches the same numbers: other vector widths and other GEMM kernels reorder
# sums. A tolerance below what these do would reject harmless candidates.
_BENIGN: dict[str, tuple[dict[str, OptionValue], ...]] = {
    "cpu": ({"xla_cpu_prefer_vector_width": 128}, {"xla_backend_optimization_level": 1}),
    "gpu": ({"xla_gpu_enable_triton_gemm": False}, {"xla_gpu_exclude_nondeterministic_ops": True}),
}
# Draws of rounding errors that the inputs are moved by; 0 is a plain repeat.
_NUDGES = (0, 1, 2)


class Ask(Protocol):
    """Compares what is compiled as `handle` with the control's own reference, its inputs moved or not."""

    def __call__(self, handle: str, *, nudge: int = 0, nudge_size: float = 1.0) -> NumericsReply | Failure: ...


def benign_variants(run: Run) -> list[Variant]:
    """The benign changes that this compiler knows, to be compiled beside the control."""
    known = run.record("probe", ProbeRecord).option_types
    changes = [options for options in _BENIGN.get(run.loaded.platform, ()) if options.keys() <= known.keys()]
    return [Variant(id=f"benign-{index}", compiler_options=options) for index, options in enumerate(changes)]


def limits_of(ask: Ask, benign: Sequence[str], *, note: Callable[[str, NumericsReply], None]) -> Limits | Failure:
    """The gate's limits: from the control again, inputs moved by rounding errors, and the benign recompiles (handles).

    `note` is told each reply with its purpose. A benign recompile that fails tells nothing; the failure of the control
    itself is returned.
    """
    replies: list[NumericsReply] = []
    asked = [(CONTROL, nudge) for nudge in _NUDGES] + [(handle, 0) for handle in benign]
    for handle, nudge in asked:
        reply = ask(handle, nudge=nudge)
        if isinstance(reply, NumericsReply):
            replies.append(reply)
            note("null", reply)
        elif handle == CONTROL:
            return reply
    coarse = ask(CONTROL, nudge=1, nudge_size=COARSE_NUDGE)
    if isinstance(coarse, Failure):
        return coarse
    note("coarse", coarse)
    return Limits(usual=tolerances(replies, coarse), strict=tolerances(replies, coarse, strict=True))
