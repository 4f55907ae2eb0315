"""Which recompiling is trouble, and which is a program's own few shapes."""

from __future__ import annotations

import dataclasses

import pytest
from profile_traces import GPU_HLO, gpu_reply

from tuner.profile import analyse, churn
from tuner.protocol.messages import Recompiled

STEP = Recompiled(
    name="train",
    where="/home/me/train.py:31",
    compiles=6,
    seconds=3.14,
    calls=6,
    late=3,
    inside=6,
    shapes=6,
    differs="args[1]: f32[2], f32[3]",
    step=True,
    tuned="args[1] f32[2]",
)


def kinds(**changes: object) -> list[str]:
    return [found.kind for found in churn([dataclasses.replace(STEP, **changes)])]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("shapes", {}),
        ("shapes", {"calls": 60, "compiles": 40, "shapes": 40, "late": 15}),
        ("variants", {"calls": 60, "late": 2}),  # eight buckets, all seen before long
        ("variants", {"compiles": 3, "shapes": 3, "calls": 3, "late": 2}),  # too few to tell
        ("shapes", {"shapes": 1}),  # jitted anew
        ("", {"shapes": 1, "compiles": 2, "late": 1}),
        ("shapes", {"step": False, "compiles": 3, "calls": 3, "late": 2, "inside": 2}),
        ("", {"step": False, "compiles": 3, "calls": 3, "late": 2, "inside": 1}),
        ("", {"step": False, "calls": 40, "late": 0, "seconds": 0.5}),
        ("start", {"step": False, "inside": 0}),  # layers made one after another, before the loop
        ("start", {"step": False, "calls": 0, "shapes": 0, "compiles": 4}),
        ("", {"step": False, "calls": 0, "shapes": 0, "compiles": 3}),
        ("", {"step": False, "calls": 0, "shapes": 0, "seconds": 0.9}),
    ],
)
def test_what_is_said_of_it(kind: str, changes: dict[str, object]) -> None:
    assert kinds(**changes) == ([kind] if kind else [])


def test_the_words_name_the_function_its_line_the_seconds_and_what_differs() -> None:
    (found,) = churn([STEP])
    assert found.told == (
        "train is called with new shapes again and again: 6 compiles in 6 calls, 3.1 s (args[1]: f32[2], f32[3]). "
        "No setting makes up for that: pad to a few sizes, or make what changes an array instead of a shape "
        "(/home/me/train.py:31)"
    )


def test_the_step_comes_first_and_not_everything_is_told() -> None:
    others = [dataclasses.replace(STEP, name=f"f{n}", step=False, seconds=10.0 + n) for n in range(6)]
    assert [f.text.split()[0] for f in churn([*others, STEP])] == ["train", "f5", "f4", "f3"]


def test_it_stands_before_what_the_trace_shows() -> None:
    reply = gpu_reply([("gemm", 1, 95, 7)])
    found = analyse(reply, [GPU_HLO], recompiled=(STEP,)).findings
    assert found[0] == churn([STEP])[0]


def test_compiles_between_traced_steps_are_told_from_the_blocks_before() -> None:
    seldom = Recompiled(name="augment", where="/home/me/train.py:9", compiles=5, seconds=0.4)
    reply = dataclasses.replace(gpu_reply([("gemm", 1, 95, 7)]), recompiled=(seldom,))
    (found,) = [f for f in analyse(reply, [GPU_HLO]).findings if f.kind == "recompiles"]
    assert found.text.startswith("5 compiles in steady steps (augment), none of them in those that were traced")
    assert found.where == "/home/me/train.py:9"
