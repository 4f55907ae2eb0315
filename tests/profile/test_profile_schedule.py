"""What a program is expected to give its device: in order, loops turn by turn."""

from __future__ import annotations

import pytest
from profile_traces import GPU_HLO, gpu_reply

from tuner.profile.attribution import attributed_by_schedule, coverage
from tuner.profile.hlo import read_module
from tuner.profile.schedule import scheduled, stem
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
