"""The knobs of made-up runs, and those that leave them."""

from __future__ import annotations

import msgspec

from tuner.knobs.knob import Knob
from tuner.knobs.status import KnobStatus

__all__ = ["ISA", "KNOBS", "LEFT_AT_PROBE", "MALLOC", "MATH", "PASSES", "SPLIT", "knob"]

MATH = "xla_cpu_enable_platform_dependent_math"
SPLIT = "xla_cpu_parallel_codegen_split_count"
MALLOC = "MALLOC_ARENA_MAX"
PASSES = "xla_disable_hlo_passes"
ISA = "xla_cpu_max_isa"


def knob(name: str, values: tuple[str, ...], **fields: object) -> Knob:
    """A knob with the fields that don't matter filled in."""
    given = {"carrier": "xla_flag", "type": "bool", "lane": "option", "acts_on": "codegen", "group": "codegen"}
    told = {"why": "changes what the compiler makes of a fusion", "source": "xla/debug_options_flags.cc"}
    return msgspec.convert({"name": name, "values": values, **given, **told, **fields}, Knob)


KNOBS = (
    knob(MATH, ("unset", "false", "true"), acts_on="library", group="math", risk="numerics"),
    knob(SPLIT, ("unset", "1", "8"), type="int"),
    knob(PASSES, ("unset", "", "fusion"), type="list", acts_on="hlo", group="passes"),
    knob(MALLOC, ("unset", "1", "2"), carrier="env", type="int", lane="environment", acts_on="runtime", group="memory"),
)
LEFT_AT_PROBE = (
    KnobStatus(name="xla_cpu_enable_xnnpack", status="unsupported", reason="no such option in jaxlib 0.10.2"),
    KnobStatus(name="xla_cpu_use_thunk_runtime", status="unsupported", reason="no such option in jaxlib 0.10.2"),
    *(
        KnobStatus(name=f"xla_gpu_{name}", status="inapplicable", reason="needs platform gpu, this is cpu")
        for name in ("enable_triton_gemm", "graph_level", "autotune_level", "enable_latency_hiding_scheduler", "ftz")
    ),
    KnobStatus(name="NCCL_MAX_CTAS", status="pinned", reason="inherited as 8; --override NCCL_MAX_CTAS frees it"),
    KnobStatus(name=SPLIT, status="renamed", reason="offered as xla_cpu_codegen_split_count, which is its older name"),
)
