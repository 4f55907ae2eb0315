"""Profiles of real traces: 64 small layers on an H100, whose step is one CUDA graph of 450 kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest
from card_traces import ASSETS, card

from tuner.profile import HOST_GAPS, StepProfile, analyse
from tuner.profile.attribution import attributed
from tuner.profile.dependencies import producers
from tuner.profile.hlo import read_module
from tuner.profile.timeline import timeline
from tuner.protocol.messages import ProfileReply
from tuner.worker.trace import launch_order, read_trace

pytestmark = pytest.mark.slow

MLP = card("mlp-h100")
LAYERS, BATCH, WIDTH = 64, 512, 256
PRODUCTS = 2.0 * BATCH * WIDTH * WIDTH * (3 * LAYERS - 1)  # the first layer's input has no gradient
PARAMETERS = 65


def profile(*, as_run: ProfileReply = MLP.as_run, named: ProfileReply | None = MLP.named) -> StepProfile:
    return analyse(as_run, MLP.texts, named=named, ceiling=MLP.ceiling)


FOUND = profile()


def test_every_kernel_of_the_graph_finds_its_operation() -> None:
    breakdown = FOUND.breakdown
    assert (breakdown.platform, breakdown.kernels, breakdown.graphs) == ("gpu", 450, 1.0)
    assert breakdown.attributed == 1.0
    assert all(row.op for row in breakdown.ops[:-1])
    assert breakdown.ops[-1].name == "390 others"
    assert breakdown.ops[-1].calls == 390
    assert not any("command_buffer" in row.name for row in breakdown.ops)


def test_times_of_operations_and_of_kernels_and_parts_sum_up() -> None:
    breakdown = FOUND.breakdown
    assert sum(breakdown.parts.values()) == pytest.approx(breakdown.step_ms)
    assert sum(row.self_ms for row in breakdown.ops) == pytest.approx(breakdown.busy_ms)
    assert sum(row.self_ms for row in breakdown.by_kernel) == pytest.approx(breakdown.busy_ms, rel=0.01)
    assert sum(row.share for row in breakdown.ops) == pytest.approx(breakdown.busy_ms / breakdown.step_ms)


def test_the_step_is_the_one_without_a_trace_and_what_was_scaled_is_said() -> None:
    """In the trace launching the graph takes the host longer than the whole step without it."""
    breakdown = FOUND.breakdown
    assert breakdown.step_ms == pytest.approx(0.975)
    assert breakdown.traced_ms > 2.5
    assert breakdown.scale == pytest.approx(0.975, abs=0.005)
    assert HOST_GAPS not in breakdown.parts


def test_kinds_of_work_are_those_of_the_operations() -> None:
    kernels = {row.name: row for row in FOUND.breakdown.by_kernel}
    copies = kernels["memcpy32_post"]
    assert (copies.category, copies.ops) == ("copy on device", PARAMETERS - 1)
    assert kernels["loop_subtract_fusion"].category == "elementwise"  # sums up 8 partial products by the way
    products = [row for row in kernels.values() if row.category == "matrix multiply"]
    assert sum(row.calls for row in products) >= 3 * LAYERS - 3
    assert FOUND.breakdown.parts["matrix multiply"] == pytest.approx(0.50, abs=0.02)


def test_each_operation_has_its_own_registers_occupancy_scope_line_and_share_of_the_roof() -> None:
    row = next(row for row in FOUND.breakdown.ops if row.name.startswith("gemm_fusion_dot"))
    assert row.kernel.startswith("gemm_fusion_dot_")
    assert (row.registers, row.occupancy) == (76, 0.375)
    assert (row.category, row.scope, row.source, row.calls) == ("matrix multiply", "backward", "mlp.py:29", 1.0)
    assert row.flops == 2 * BATCH * WIDTH * WIDTH
    assert row.bytes is not None
    assert 0.2 < (row.roof or 0.0) < 1.0
    first = FOUND.breakdown.ops[0]
    assert (first.category, first.registers, first.occupancy) == ("reduction", 40, 0.75)


def test_the_roofline_is_of_all_operations() -> None:
    roof = FOUND.roofline
    assert roof.flops == pytest.approx(PRODUCTS, rel=0.02)  # and some arithmetic beside them
    assert roof.flops > PRODUCTS
    assert 0.4 < (roof.share or 0.0) < 0.7


def test_kernels_shorter_than_their_launch_are_what_holds_it_back() -> None:
    assert FOUND.bound == "launch"
    told = {finding.kind: finding for finding in FOUND.findings}
    assert "half of its 450 operations take less than 2.8" in told["tiny"].text
    assert told["knobs"].groups[0] == "launch"


def test_the_order_of_launches_counts_where_kernels_run_side_by_side() -> None:
    """Two that don't need each other are done in the other order."""
    modules = {module.name: module for module in map(read_module, MLP.texts)}
    reads = producers(modules)
    joined = attributed(
        timeline(MLP.as_run.labels, MLP.as_run.lines, modules),
        timeline(MLP.named.labels, MLP.named.lines, modules),
        modules,
    )
    (events,) = joined.devices.values()
    where = {(event.start, event.launched): event for event in events}
    swapped = 0
    lines = []
    for line in MLP.as_run.lines:
        starts = list(line.starts_ns)
        for i in range(0, len(starts) - 1, 2) if line.launched else ():
            one, two = (where[float(starts[k]), line.launched[k]] for k in (i, i + 1))
            if one.op not in reads[two.module, two.op]:
                starts[i : i + 2] = starts[i + 1], starts[i]
                swapped += 1
        lines.append(replace(line, starts_ns=tuple(starts)))
    assert swapped >= 64
    found = profile(as_run=replace(MLP.as_run, lines=tuple(lines)))
    assert found.breakdown.attributed == 1.0
    assert {row.name: row.calls for row in found.breakdown.by_kernel if row.ops == 64} == {
        row.name: row.calls for row in FOUND.breakdown.by_kernel if row.ops == 64
    }


def test_kernels_in_an_order_in_which_nothing_could_have_run_are_of_no_known_operation() -> None:
    lines = []
    for line in MLP.as_run.lines:
        starts = list(line.starts_ns)
        if line.launched:
            half = len(starts) // 2
            for begin in (0, half):
                starts[begin : begin + half] = starts[begin : begin + half][::-1]
        lines.append(replace(line, starts_ns=tuple(starts)))
    found = profile(as_run=replace(MLP.as_run, lines=tuple(lines)))
    assert found.breakdown.attributed == 0.0
    assert "not their operations" in found.breakdown.note


def test_an_operation_that_got_another_kernel_is_known_by_its_place() -> None:
    """Autotuning may choose differently in the other compile."""
    labels = tuple(
        replace(label, name=label.name.replace("gemm_fusion_dot_64", "nvjet_sss")) for label in MLP.named.labels
    )
    assert labels != MLP.named.labels
    found = profile(named=replace(MLP.named, labels=labels))
    assert found.breakdown.attributed == 1.0
    assert {row.name for row in found.breakdown.ops} == {row.name for row in FOUND.breakdown.ops}


def test_without_the_other_trace_the_schedule_tells_operations() -> None:
    found = profile(named=None)
    assert found.breakdown.attributed == 1.0
    assert found.breakdown.ops == FOUND.breakdown.ops
    assert found.breakdown.parts == pytest.approx(FOUND.breakdown.parts)
    assert found.roofline == FOUND.roofline
    assert "by the program's schedule alone" in found.breakdown.note


def test_without_the_program_either_kinds_come_from_the_kernels_names() -> None:
    found = analyse(MLP.as_run, [], ceiling=MLP.ceiling)
    assert found.breakdown.attributed == 0.0
    assert not any(row.op for row in found.breakdown.ops)
    assert found.breakdown.parts["matrix multiply"] == pytest.approx(FOUND.breakdown.parts["matrix multiply"])
    assert found.roofline.share is None
    assert "not their operations" in found.breakdown.note
    assert FOUND.breakdown.note == ""


def test_what_a_card_writes_is_read() -> None:
    labels, lines = read_trace(ASSETS / "mlp-h100-as-run.xplane.pb", python=False)
    device = next(line for line in lines if line.plane == "/device:GPU:0")
    assert device.launched == tuple(range(40))
    first = labels[device.labels[0]]
    assert (first.name, first.op, first.module, first.graph) == ("memcpy32_post", "command_buffer_1", "jit_step", True)
    assert first.details.startswith("regs:16 ")
    assert {"tune_step", "PjitFunction(step)"} <= {label.name for label in labels}
    labels, lines = read_trace(ASSETS / "mlp-h100-attributed.xplane.pb", python=False)
    device = next(line for line in lines if line.plane == "/device:GPU:0")
    named = labels[device.labels[1]]
    assert (named.op, named.scope, named.graph) == ("loop_add_fusion.63", "jit(step)/add", False)
    assert labels[device.labels[0]].details.endswith("size:4 dest:0 async:1")


def test_launches_come_in_their_order_nodes_of_a_graph_in_theirs_and_loops_in_time() -> None:
    beside = [(5.0, (2, 0)), (3.0, (2, 1)), (9.0, (1, 0)), (1.0, (3, 0))]
    assert launch_order(beside) == [1, 2, 0, 3]
    looped = [(1.0, (1, 5)), (2.0, (1, 6)), (3.0, (1, 5)), (4.0, (1, 6)), (5.0, (1, 4))]
    assert launch_order(looped) == [0, 1, 2, 3, 4]


GRAPH = 4 << 32  # what a graph's own number adds to those of its nodes


@pytest.mark.parametrize(
    "nodes",
    [
        (0, 1, 2, 3),
        (0, 5, 6, 2, 7, 4),  # two calls of libraries, at 1 and 3, whose nodes follow
        (3, 4, 2),  # one that comes first of all
        (0, 3, 5, 2),  # one with a graph in it, at 4
    ],
)
def test_what_is_in_a_graph_inside_a_graph_has_its_place_though_its_numbers_come_later(nodes: tuple[int, ...]) -> None:
    events = [(float(place), (9, GRAPH + node)) for place, node in enumerate(nodes)]
    assert launch_order(events) == list(range(len(nodes)))


@pytest.mark.parametrize("first", [GRAPH, 70])
def test_nodes_whose_numbers_have_no_hole_are_side_by_side_whatever_began_first(first: int) -> None:
    assert launch_order([(9.0 - place, (9, first + place)) for place in range(4)]) == [0, 1, 2, 3]
