"""Hand-made traces and modules for the tests of profiles, as the profiler and the compiler write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.protocol.messages import ProfileReply, TraceLabel, TraceLine

US = 1000
"""ns in a microsecond."""

GPU_HLO = """HloModule jit_train, is_scheduled=true

FileNames
1 "/home/me/train.py"

FunctionNames
1 "loss"

FileLocations
1 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=4 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}


%fused_gelu (p0.1: bf16[4096,3072]) -> bf16[4096,3072] {
  %p0.1 = bf16[4096,3072]{1,0} parameter(0)
  ROOT %tanh.1 = bf16[4096,3072]{1,0} tanh(%p0.1), metadata={op_name="jit(train)/jvp(mlp)/gelu/tanh"}
}

%sum (a.1: f32[], b.1: f32[]) -> f32[] {
  %a.1 = f32[] parameter(0)
  %b.1 = f32[] parameter(1)
  ROOT %add.9 = f32[] add(%a.1, %b.1)
}

%body (state.1: (s32[], bf16[4096,768])) -> (s32[], bf16[4096,768]) {
  %state.1 = (s32[], bf16[4096,768]{1,0}) parameter(0)
  %count.1 = s32[] get-tuple-element(%state.1), index=0
  %x.2 = bf16[4096,768]{1,0} get-tuple-element(%state.1), index=1
  %w.1 = bf16[768,768]{1,0} constant({...})
  %cublas-gemm.3 = (bf16[4096,768]{1,0}, s8[4194304]{0}) custom-call(%x.2, %w.1), custom_call_target="__cublas$gemm", \
metadata={op_name="jit(train)/jvp(block)/while/body/dot_general" stack_frame_id=1}, \
backend_config={"gemm_backend_config":{"alpha_real":1,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],\
"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}}}
  %y.1 = bf16[4096,768]{1,0} get-tuple-element(%cublas-gemm.3), index=0
  ROOT %out.1 = (s32[], bf16[4096,768]{1,0}) tuple(%count.1, %y.1)
}

%cond (state.2: (s32[], bf16[4096,768])) -> pred[] {
  %state.2 = (s32[], bf16[4096,768]{1,0}) parameter(0)
  ROOT %more.1 = pred[] constant(true)
}

ENTRY %main (x.1: bf16[4096,768], k.1: bf16[768,3072]) -> bf16[4096,3072] {
  %x.1 = bf16[4096,768]{1,0} parameter(0)
  %k.1 = bf16[768,3072]{1,0} parameter(1)
  %zero.1 = s32[] constant(0)
  %init.1 = (s32[], bf16[4096,768]{1,0}) tuple(%zero.1, %x.1)
  %while.2 = (s32[], bf16[4096,768]{1,0}) while(%init.1), condition=%cond, body=%body, \
metadata={op_name="jit(train)/jvp(block)/while"}, backend_config={"known_trip_count":{"n":"12"}}
  %h.1 = bf16[4096,768]{1,0} get-tuple-element(%while.2), index=1
  %all-reduce.1 = bf16[4096,768]{1,0} all-reduce(%h.1), replica_groups={{0,1}}, to_apply=%sum
  %gemm_fusion_dot.4 = bf16[4096,3072]{1,0} dot(%all-reduce.1, %k.1), lhs_contracting_dims={1}, \
rhs_contracting_dims={0}, metadata={op_name="jit(train)/transpose(jvp(mlp))/dot_general" stack_frame_id=1}
  ROOT %loop_gelu_fusion = bf16[4096,3072]{1,0} fusion(%gemm_fusion_dot.4), kind=kLoop, calls=%fused_gelu, \
metadata={op_name="jit(train)/jvp(mlp)/gelu/tanh" stack_frame_id=1}
}
"""


def gpu_reply(
    work: Sequence[tuple[str, float, float, int]],
    *,
    steps: int = 1,
    step_us: float = 100.0,
    labels: Mapping[str, TraceLabel] | None = None,
    host: Sequence[tuple[str, float, float]] = (),
    python: Sequence[tuple[str, float, float]] = (),
    cpu: bool = False,
) -> ProfileReply:
    """`work`: (kernel, start, duration, stream) in us within a step, the same in each; with `cpu` the streams are
    threads. `host`, `python`: likewise, on the host's threads."""
    known = labels or {}
    table: dict[TraceLabel, int] = {}
    lines: dict[tuple[str, str], list[tuple[int, int, int]]] = {}

    def add(plane: str, line: str, label: TraceLabel, start: float, lasts: float) -> None:
        number = table.setdefault(label, len(table))
        lines.setdefault((plane, line), []).append((number, round(start * US), round(lasts * US)))

    for step in range(steps):
        begin = step * step_us
        add("/host:CPU", "python", TraceLabel(name="tune_step"), begin, step_us)
        for name, start, lasts in host:
            add("/host:CPU", "python", TraceLabel(name=name), begin + start, lasts)
        for name, start, lasts in python:
            add("/host:CPU", "python", TraceLabel(name=name), begin + start, lasts)
        for name, start, lasts, stream in work:
            label = known.get(name, TraceLabel(name=name))
            plane, line = ("/host:CPU", "tf_XLAEigen/") if cpu else ("/device:GPU:0", "Stream #")
            add(plane, f"{line}{stream}", label, begin + start, lasts)
    return ProfileReply(
        xplane="x.xplane.pb",
        seconds=steps * step_us / 1e6,
        plain_s=step_us / 1e6,
        labels=tuple(table),
        lines=tuple(
            TraceLine(
                plane=plane,
                name=name,
                labels=tuple(n for n, _, _ in events),
                starts_ns=tuple(s for _, s, _ in events),
                durations_ns=tuple(d for _, _, d in events),
            )
            for (plane, name), events in lines.items()
        ),
    )
