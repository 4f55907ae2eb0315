"""Ranks side by side: who waits for whom, told from made-up traces, and from real gangs on the CPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from tuner.pipeline.profiling import ProfileOptions, profile_workload
from tuner.profile import HOST_GAPS, LAUNCH_GAPS, RankRow, StepProfile, analyse
from tuner.profile.groups import rank_groups
from tuner.profile.hlo import Instruction, read_module
from tuner.profile.ranks import compare_ranks, late_ranks
from tuner.protocol.messages import ProfileReply, TraceLabel, TraceLine

US = 1000
HLO = """HloModule jit_step

ENTRY %main (x: f32[8]) -> f32[8] {{
  %x = f32[8]{{0}} parameter(0)
  %dot.1 = f32[8]{{0}} add(%x, %x)
  %all-reduce.1 = f32[8]{{0}} all-reduce(%dot.1), replica_groups={groups}, to_apply=%sum
  ROOT %add.1 = f32[8]{{0}} add(%all-reduce.1, %x)
}}
"""
ALL = HLO.format(groups="{}")
LABELS = (
    TraceLabel(name="tune_step"),
    *(TraceLabel(name=op.replace(".", "_"), op=op, module="jit_step") for op in ("dot.1", "all-reduce.1", "add.1")),
)


def reply(steps: Sequence[tuple[float, float]], *, step_us: float = 110.0, behind: float = 0.0) -> ProfileReply:
    """One rank on a card: each step has so much work, then is in the collective for so long, us; `behind`: the share of
    the collective with work beside it."""
    begins = [round(number * step_us * US) for number in range(len(steps))]
    spans: list[tuple[int, int, float, float]] = []
    for begin, (work, inside) in zip(begins, steps, strict=True):
        spans.append((7, 1, begin, work))
        spans.append((9, 2, begin + work * US, inside))
        if behind:
            spans.append((7, 3, begin + work * US, behind * inside))
    host = TraceLine(
        plane="/host:CPU",
        name="python",
        labels=(0,) * len(steps),
        starts_ns=tuple(begins),
        durations_ns=(round(step_us * US),) * len(steps),
    )
    lines = [
        TraceLine(
            plane="/device:GPU:0",
            name=f"Stream #{stream}",
            labels=tuple(label for s, label, _, _ in spans if s == stream),
            starts_ns=tuple(round(at) for s, _, at, _ in spans if s == stream),
            durations_ns=tuple(round(us * US) for s, _, _, us in spans if s == stream),
        )
        for stream in (7, 9)
    ]
    return ProfileReply(xplane="x", seconds=1e-4, labels=LABELS, lines=(host, *lines))


def rows(*replies: ProfileReply, text: str = ALL) -> tuple[RankRow, ...]:
    module = read_module(text)
    return compare_ranks(replies, {module.name: module})


EARLY, LATE = [(20.0, 80.0)] * 3, [(90.0, 10.0)] * 3


def test_the_rank_that_is_in_a_collective_the_shortest_is_the_one_that_others_wait_for() -> None:
    first, second, third = rows(reply(EARLY), reply(LATE), reply(EARLY))
    assert (first.waits_ms, second.waits_ms, third.waits_ms) == ({1: pytest.approx(0.07)}, {}, {1: pytest.approx(0.07)})
    assert (first.step_ms, first.work_ms, first.exposed_ms) == (0.11, pytest.approx(0.02), pytest.approx(0.08))
    assert first.gaps_ms == pytest.approx(0.01)
    assert second.work_ms == pytest.approx(0.09)
    assert first.collective == "all-reduce.1"
    (finding,) = late_ranks((first, second, third))
    assert finding.kind == "straggler"
    assert finding.text == (
        "ranks 0, 2 wait for rank 1, up to 0.07 ms of each step (64 %) in all-reduce.1: rank 1 is at work for 0.09 ms "
        "and paused for 0.01 ms, rank 0 0.02 and 0.01. No setting of collectives makes up for that"
    )


def test_ranks_that_come_together_wait_for_nobody() -> None:
    found = rows(reply(EARLY), reply([(20.0, 79.0)] * 3))
    assert found[0].waits_ms == {1: pytest.approx(0.001)}
    assert late_ranks(found) == []


def test_one_disturbed_step_makes_no_straggler() -> None:
    found = rows(reply([(20, 40), (20, 80), (20, 40)]), reply([(20, 40), (60, 40), (20, 40)]))
    assert [row.waits_ms for row in found] == [{}, {}]


def test_ranks_that_are_late_in_turns_are_told_as_uneven() -> None:
    other = "  %all-reduce.2 = f32[8]{0} all-reduce(%x), replica_groups={}, to_apply=%sum"
    text = ALL.replace("  ROOT", f"{other}\n  ROOT")
    labels = (*LABELS, TraceLabel(name="all_reduce_2", op="all-reduce.2", module="jit_step"))

    def twice(first: float, second: float) -> ProfileReply:
        one = reply([(5.0, first)] * 3)
        device = next(line for line in one.lines if line.labels[0] == 2)
        more = dataclasses.replace(
            device,
            name="Stream #11",
            labels=(4,) * 3,
            starts_ns=tuple(at + round(first * US) for at in device.starts_ns),
            durations_ns=(round(second * US),) * 3,
        )
        return dataclasses.replace(one, labels=labels, lines=(*one.lines, more))

    found = rows(twice(50, 10), twice(10, 50), text=text)
    assert found[0].waits_ms == {1: pytest.approx(0.04)}
    assert found[1].waits_ms == {0: pytest.approx(0.04)}
    (finding,) = late_ranks(found)
    assert finding.kind == "uneven"
    assert "73 % of a step" in finding.text


def test_the_ranks_pauses_are_those_of_the_breakdown() -> None:
    """A host that is well ahead holds up no rank, so what a step takes longer than in the trace is its work."""
    one = dataclasses.replace(reply([(60.0, 40.0)] * 3), plain_s=150e-6, dispatch_s=20e-6)
    row, _ = rows(one, one)
    found = analyse(dataclasses.replace(one, ranks=(one,)), [ALL])
    gaps = sum(found.breakdown.parts.get(name, 0.0) for name in (HOST_GAPS, LAUNCH_GAPS))
    assert row.gaps_ms == pytest.approx(gaps)
    assert gaps == pytest.approx(0.02)


def test_waiting_that_work_hides_is_no_waiting() -> None:
    assert rows(reply(EARLY, behind=1.0), reply(LATE))[0].waits_ms == {}
    half = rows(reply(EARLY, behind=0.5), reply(LATE))[0]
    assert half.waits_ms == {1: pytest.approx(0.04)}
    assert half.hidden_ms == pytest.approx(0.04)


def test_only_ranks_of_one_group_wait_for_each_other() -> None:
    found = rows(*map(reply, (EARLY, LATE, EARLY, EARLY)), text=HLO.format(groups="{{0,1},{2,3}}"))
    assert [row.waits_ms for row in found] == [{1: pytest.approx(0.07)}, {}, {}, {}]


@pytest.mark.parametrize(
    ("text", "ranks", "groups"),
    [
        ("replica_groups={}, to_apply=%s", 2, [(0, 1)]),
        ("replica_groups={{0,1,2,3}}", 4, [(0, 1, 2, 3)]),
        ("replica_groups={{0,2},{1,3}}", 4, [(0, 2), (1, 3)]),
        ("replica_groups={{0,2},{1,3}}", 2, [(0, 1)]),  # two devices a rank
        ("replica_groups={{0,1},{2,3}}", 2, []),  # within each rank
        ("replica_groups=[2,2]<=[4]", 4, [(0, 1), (2, 3)]),
        ("replica_groups=[2,2]<=[2,2]T(1,0)", 4, [(0, 2), (1, 3)]),
        ("replica_groups=[4,2]<=[2,2,2]T(0,2,1)", 8, [(0, 2), (1, 3), (4, 6), (5, 7)]),
        ("replica_groups=[2,2]<=[3]", 4, [(0, 1, 2, 3)]),
        ("replica_groups={{0,1},{2}}", 2, [(0, 1)]),  # they don't divide
        ("replica_groups=something_new", 3, [(0, 1, 2)]),
    ],
)
def test_groups_of_ranks(text: str, ranks: int, groups: list[tuple[int, ...]]) -> None:
    made = Instruction(name="a", opcode="all-reduce", shapes=(), operands=(), called={}, text=text)
    assert rank_groups(made, ranks) == groups


def test_of_a_permutation_nothing_is_claimed_and_of_the_unknown_that_all_take_part() -> None:
    made = Instruction(name="a", opcode="collective-permute-start", shapes=(), operands=(), called={}, text="")
    assert rank_groups(made, 4) == []
    assert rank_groups(None, 3) == [(0, 1, 2)]


def test_a_profile_has_its_ranks_and_a_single_process_has_none() -> None:
    whole = dataclasses.replace(reply(EARLY), ranks=(reply(LATE),))
    found = analyse(whole, [ALL])
    assert [row.rank for row in found.ranks] == [0, 1]
    assert found.findings[0].kind == "straggler"
    assert found.breakdown.parts["collective"] == pytest.approx(0.08)
    alone = analyse(reply(EARLY), [ALL])
    assert alone.ranks == ()
    assert "straggler" not in {f.kind for f in alone.findings}


GANG = """
import time
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

def build(late=0):
    mesh = Mesh(np.array(jax.devices()), ("d",))
    def slow(a):
        if jax.process_index() == 1:
            time.sleep(1e-3 * late)
        return np.asarray(a)
    def inner(x):
        y = jax.pure_callback(slow, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        return x + 1e-3 * jax.lax.psum(y, "d")
    step = jax.jit(jax.shard_map(inner, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False))
    of = NamedSharding(mesh, P("d"))
    ones = np.ones((16, 16), np.float32)
    return step, (jax.make_array_from_callback((16 * len(jax.devices()), 16), of, lambda _: ones),)
"""


def profiled(tmp_path: Path, late: int) -> StepProfile:
    workload = tmp_path / "gang.py"
    workload.write_text(GANG)
    made = ProfileOptions(
        workload=workload,
        folder=tmp_path / f"out-{late}",
        root=tmp_path,
        platform="cpu",
        steps=5,
        processes=2,
        knobs={"late": late},
    )
    found = profile_workload(made).profile
    assert found is not None
    return found


@pytest.mark.jax
def test_a_real_rank_that_sleeps_before_its_collective_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # no run of somebody else's is waited for
    found = profiled(tmp_path, 150)
    first, second = found.ranks
    assert first.waits_ms[1] > 75
    assert second.waits_ms.get(0, 0.0) < 20
    assert second.work_ms > first.work_ms + 75
    finding = next(f for f in found.findings if f.kind == "straggler")
    assert finding.text.startswith("rank 0 waits for rank 1, up to ")
    assert Path(found.files["trace, rank 1"]).parts[-6:-4] == ("as-run", "rank-1")
    assert found.roofline.ceiling is not None
