"""Profiles of real traces whose graphs have graphs in them, of what libraries do, and copies and collectives beside."""

from __future__ import annotations

from dataclasses import replace

import pytest
from card_traces import ASSETS, Card, card

from tuner.profile import HOST_GAPS, StepProfile, analyse
from tuner.profile.hlo import Module, read_module
from tuner.protocol.messages import ProfileReply
from tuner.worker.trace import read_trace

BIG = [pytest.param(name, marks=pytest.mark.slow) for name in ("decode-h200", "gpt_tp-h200")]
CARDS = ("attention-h200", "moe-h200", *BIG)
LIBRARY = ("nvjet", "sm90_xmma", "cudnn_generated", "void cudnn", "void cublasLt")


def profile(cut: Card, *, as_run: ProfileReply | None = None, named: ProfileReply | None) -> StepProfile:
    return analyse(as_run or cut.as_run, cut.texts, named=named, ceiling=cut.ceiling)


def modules(cut: Card) -> dict[str, Module]:
    return {module.name: module for module in map(read_module, cut.texts)}


def test_nodes_of_graphs_inside_a_graph_are_taken_where_they_ran() -> None:
    """From the file that the profiler writes: what libraries do is numbered behind all else."""
    cut = card("attention-h200")
    labels, lines = read_trace(ASSETS / "attention-h200-as-run.xplane.pb", python=False)
    device = next(line for line in lines if line.plane == "/device:GPU:0")
    assert device.launched == tuple(range(60))
    found = profile(cut, as_run=replace(cut.as_run, labels=labels, lines=lines), named=cut.named)
    assert (found.breakdown.steps, found.breakdown.attributed) == (2, 1.0)
    attention = {row.name: row.calls for row in found.breakdown.ops if row.category == "attention"}
    # A clearing of memory and a kernel, and one with two kernels beside it.
    assert attention == {"dot_product_attention_fwd.5": 2, "dot_product_attention_bwd.8": 4}


@pytest.mark.parametrize("name", CARDS)
def test_every_kernel_is_of_an_operation_of_the_program_and_all_sums_up(name: str) -> None:
    cut = card(name)
    programs = modules(cut)
    found = profile(cut, named=cut.named)
    breakdown = found.breakdown
    assert breakdown.attributed == 1.0
    rows = [row for row in breakdown.ops if not row.name.endswith(" others")]
    assert all(programs[row.module].instruction(row.name) for row in rows)
    assert sum(breakdown.parts.values()) == pytest.approx(breakdown.step_ms)
    assert sum(row.self_ms for row in breakdown.ops) == pytest.approx(breakdown.busy_ms)
    # No kernel moves more than the memory of this card can (4.8 TB/s), unless it fits into a cache.
    assert not [
        row.name for row in rows if row.bytes and row.bytes > 64e6 * row.calls and row.bytes / row.self_ms > 4.8e9
    ]


@pytest.mark.parametrize("name", CARDS)
def test_the_schedule_alone_tells_the_same_as_the_other_trace(name: str) -> None:
    cut = card(name)
    by_both, by_schedule = profile(cut, named=cut.named).breakdown, profile(cut, named=None).breakdown
    assert by_schedule.attributed == 1.0
    both = {row.name: row.self_ms for row in by_both.ops[:40]}
    alone = {row.name: row.self_ms for row in by_schedule.ops[:40]}
    assert alone == pytest.approx(both)


@pytest.mark.parametrize("name", CARDS)
def test_what_got_other_kernels_in_the_other_compile_is_known_or_unknown_and_never_another(name: str) -> None:
    cut = card(name)
    right = {row.name: row.self_ms for row in profile(cut, named=cut.named).breakdown.ops if row.op}
    labels = tuple(
        replace(label, name=f"nvjet_{number % 3}") if label.name.startswith(LIBRARY) and number % 2 else label
        for number, label in enumerate(cut.named.labels)
    )
    assert labels != cut.named.labels
    found = profile(cut, named=replace(cut.named, labels=labels)).breakdown
    assert found.attributed > 0.98
    assert all(row.self_ms <= right[row.name] * 1.001 for row in found.ops if row.op)


def test_fused_copies_beside_the_work_move_a_slice_a_turn() -> None:
    """Each layer's weights are copied out of those of all layers while the layer before it is worked on."""
    found = profile(card("decode-h200"), named=card("decode-h200").named)
    rows = {row.name: row for row in found.breakdown.ops}
    copied = rows["fusion-start.2"]
    assert (copied.category, copied.calls) == ("copy on device", 24)
    assert copied.bytes == pytest.approx(24 * 2 * 2 * 2048 * 11264)  # read and written, bfloat16
    assert found.roofline.bytes == pytest.approx(13.2e9, rel=0.01)
    assert found.bound == "memory"


def test_experts_are_held_back_by_their_products() -> None:
    found = profile(card("moe-h200"), named=card("moe-h200").named)
    assert found.bound == "compute"
    assert "in operations near the roof of arithmetic" in found.evidence.split(",")[0]
    # The step took 4 % longer than the trace's work, with the host ten steps ahead: that isn't the host's.
    assert found.breakdown.scale == pytest.approx(1.033, abs=0.001)
    assert found.breakdown.parts[HOST_GAPS] == pytest.approx(0.02)
    assert found.breakdown.exposed_ms == pytest.approx(0.293, abs=0.001)
    collectives = {row.name for row in found.breakdown.ops if row.category == "collective"}
    assert {"all_to_all.39.2", "all_to_all.43.2", "all-to-all-start.2"} < collectives
