"""What the compiler's log tells of constants that it folds slowly."""

from __future__ import annotations

import pytest

from tuner.profile.folding import folding

ALARM = """E1129 00:15:24.379878   21753 slow_operation_alarm.cc:73] Constant folding an instruction is taking > 1s:

  %reduce-window = f32[768,48,16]{0,1,2} reduce-window(%constant.6, %constant.1), window={size=1x1x16 pad=0_0x0_0x15_0}

This isn't necessarily a bug; constant-folding is inherently a trade-off.
"""


def ended(took: str) -> str:
    """The alarm, and what is printed once the operation is over."""
    head, _, rest = ALARM.partition("] ")
    return f"{ALARM}{head}] The operation took {took}\n{rest}"


@pytest.mark.parametrize(("took", "told"), [("29.822522749s", "29.8 s"), ("1m2.5s", "62.5 s")])
def test_slow_folding_is_told_with_its_time_and_what_is_computed(took: str, told: str) -> None:
    (finding,) = folding(f"before\n{ended(took)}", where="w.py:3")
    assert finding.kind == "folding"
    assert f"for {told} of every compile (reduce-window to f32[768,48,16])" in finding.text
    assert finding.where == "w.py:3"


def test_the_times_of_several_add_up() -> None:
    (finding,) = folding(ended("2s") + ended("3s"))
    assert "for 5 s of every compile" in finding.text


def test_without_an_alarm_that_ended_nothing_is_said() -> None:
    """Of other slow work the same file complains too."""
    assert folding("") == ()
    assert folding(ALARM) == ()
    assert folding("slow_operation_alarm.cc:140] The operation took 3s\nVery slow compile? in module jit_step") == ()
