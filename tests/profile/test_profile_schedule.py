"""What a program is expected to give its device: in order, loops turn by turn."""

from __future__ import annotations

import pytest
from profile_traces import GPU_HLO, gpu_reply

from tuner.profile.attribution import attributed_by_schedule, coverage
from tuner.profile.hlo import read_module
from tuner.profile.schedule import COPY, scheduled, stem
from tuner.profile.timeline import timeline
from tuner.protocol.messages import TraceLabel

MODULES = {"jit_train": read_module(GPU_HLO)}
KERNELS = ("nvjet_a", "ncclDevKernel_AllReduce", "gemm_fusion_dot_1", "loop_gelu_fusion")


def test_loops_run_as_often_as_is_written_and_what_launches_nothing_is_left_out() -> None:
    ops = [event.op for event in scheduled(MODULES)]
    assert ops == ["cublas-gemm.3"] * 12 + ["all-reduce.1", "gemm_fusion_dot.4", "loop_gelu_fusion"]
    once = read_module(GPU_HLO.replace('"known_trip_count":{"n":"12"}', '"x":1'))
    assert [event.op for event in scheduled({"jit_train": once})][:2] == ["cublas-gemm.3", "all-reduce.1"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("loop_add_fusion.63", "loop_add_fusion"),
        ("loop_add_fusion_63", "loop_add_fusion"),
        ("gemm_fusion_dot.4.1", "gemm_fusion_dot"),
        ("input-reduce.7", "input_reduce"),
        ("nvjet_tst_128x256_64x4_h_bz", "nvjet_tst_128x256_64x4_h_bz"),
    ],
)
def test_an_operation_and_its_kernel_share_a_stem(name: str, expected: str) -> None:
    assert stem(name) == expected


def test_kernels_in_graphs_are_known_by_their_stems_and_library_calls_by_their_place() -> None:
    labels = {name: TraceLabel(name=name, op="command_buffer", module="jit_train", graph=True) for name in KERNELS}
    work = [(KERNELS[0], 5.0 * i, 4.0, 7) for i in range(12)]
    work += [(name, 60.0 + 10 * i, 9.0, 7) for i, name in enumerate(KERNELS[1:])]
    reply = gpu_reply(work, labels=labels, steps=2)
    line = attributed_by_schedule(timeline(reply.labels, reply.lines, MODULES), MODULES)
    ops = [event.op for event in line.devices["/device:GPU:0"]]
    assert ops == (["cublas-gemm.3"] * 12 + ["all-reduce.1", "gemm_fusion_dot.4", "loop_gelu_fusion"]) * 2
    assert coverage(line) == 1.0


def test_names_that_a_trace_has_stay() -> None:
    """Nothing is looked for where no kernel lacks its operation."""
    labels = {"k": TraceLabel(name="k", op="something.1", module="other")}
    reply = gpu_reply([("k", 0, 10, 7)], labels=labels)
    line = timeline(reply.labels, reply.lines, MODULES)
    assert attributed_by_schedule(line, MODULES) == line


def test_what_a_library_runs_beside_its_own_kernel_is_of_the_same_call() -> None:
    names = ["Memset 0", KERNELS[0], "void cublasLt::splitKreduce_kernel<32>"]
    labels = {name: TraceLabel(name=name, graph=True) for name in (*names, *KERNELS)}
    work = [(name, 9.0 * i + 3 * at, 2.0, 7) for i in range(12) for at, name in enumerate(names)]
    work += [(name, 120.0 + 10 * i, 9.0, 7) for i, name in enumerate(KERNELS[1:])]
    reply = gpu_reply(work, labels=labels, step_us=200)
    line = attributed_by_schedule(timeline(reply.labels, reply.lines, MODULES), MODULES)
    ops = [event.op for event in line.devices["/device:GPU:0"]]
    assert ops == ["cublas-gemm.3"] * 36 + ["all-reduce.1", "gemm_fusion_dot.4", "loop_gelu_fusion"]
    assert line.devices["/device:GPU:0"][0].category == "copy on device"


SLICED = """HloModule jit_f

%take (p: f32[9,8], i: s32[]) -> f32[1,8] {
  %p = f32[9,8] parameter(0)
  %i = s32[] parameter(1)
  ROOT %s = f32[1,8] dynamic-slice(%p, %i, %i), dynamic_slice_sizes={1,8}
}

ENTRY %main (x: f32[9,8], i: s32[]) -> f32[1,8] {
  %x = f32[9,8] parameter(0)
  %i = s32[] parameter(1)
  %fusion-start.1 = ((f32[9,8], s32[]), f32[1,8], u32[]) fusion-start(%x, %i), kind=kLoop, calls=%take
  %fusion-done.1 = f32[1,8] fusion-done(%fusion-start.1)
  ROOT %loop_slice_fusion.2 = f32[1,8] fusion(%x, %i), kind=kLoop, calls=%take
}
"""


def test_a_fused_slice_is_a_copy_where_it_has_no_kernel_whatever_a_trace_calls_it() -> None:
    modules = {"jit_f": read_module(SLICED)}
    assert [event.name for event in scheduled(modules)] == [COPY, COPY]
    labels = {
        "MemcpyD2D": TraceLabel(name="MemcpyD2D", op="loop_slice_fusion.7", module="jit_f"),
        "loop_slice_fusion_2": TraceLabel(name="loop_slice_fusion_2", graph=True),
    }
    reply = gpu_reply([("MemcpyD2D", 0, 5, 8), ("loop_slice_fusion_2", 5, 5, 7)], labels=labels)
    line = attributed_by_schedule(timeline(reply.labels, reply.lines, modules), modules)
    assert [event.op for event in line.devices["/device:GPU:0"]] == ["fusion-start.1", "loop_slice_fusion.2"]
